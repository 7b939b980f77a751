"""pandas over SQLAlchemy: `pandas_frames.py HOST PORT`. Prints `ok` if every answer is right."""

import datetime
import sys

import pandas
from sqlalchemy import create_engine, text

host, port = sys.argv[1:]


def check(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


engine = create_engine(f"postgresql+psycopg2://tester@{host}:{port}/kumiki")
with engine.connect() as connection:
    nations = pandas.read_sql("select n_nationkey, n_name from nation order by 1", connection)
    check(nations.shape, (25, 2))
    check(str(nations.dtypes["n_nationkey"]), "int64")
    check(nations.loc[3, "n_name"], "CANADA")
    sql = text("select o_orderkey, o_orderdate, o_totalprice from orders where o_orderdate <= :day order by 1")
    day = datetime.date(1992, 1, 2)
    orders = pandas.read_sql(sql, connection, params={"day": day}, parse_dates=["o_orderdate"])
    count = pandas.read_sql("select count(*) as n from orders where o_orderdate <= '1992-01-02'", connection)
    check(len(orders), int(count.loc[0, "n"]))
    assert len(orders) > 0
    check(orders["o_orderdate"].max(), pandas.Timestamp(1992, 1, 2))
    parts = pandas.read_sql("select n_nationkey from nation order by 1", connection, chunksize=10)
    check([len(part) for part in parts], [10, 10, 5])
    check(pandas.read_sql("select array[1, 2] as a", connection).loc[0, "a"], [1, 2])
    check(pandas.read_sql_table("region", connection).shape, (5, 3))
    check(pandas.read_sql("select null::bigint as a", connection).loc[0, "a"], None)
print("ok")
