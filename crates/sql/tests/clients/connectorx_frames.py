"""connectorx, and polars over it: `connectorx_frames.py HOST PORT`. Prints `ok` if every answer is right."""

import datetime
import sys

import connectorx
import polars

host, port = sys.argv[1:]
place = f"postgresql://tester@{host}:{port}/kumiki"


def check(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


sql = "select n_nationkey, n_name from nation"
# Rows come in the binary form, in that of CSV, by a cursor, and as texts.
for protocol in ("binary", "csv", "cursor", "simple"):
    frame = connectorx.read_sql(place, sql, protocol=protocol, return_type="polars").sort("n_nationkey")
    check(frame.shape, (25, 2))
    check(frame.row(3), (3, "CANADA"))
    more = "select l_orderkey, l_shipdate, l_extendedprice from lineitem where l_orderkey < 100"
    frame = connectorx.read_sql(place, more, protocol=protocol, return_type="polars")
    check(frame.schema["l_shipdate"], polars.Date)
    assert frame["l_extendedprice"].to_list()[0] is not None
# In parts, which asks for the least and the greatest key first.
parts = connectorx.read_sql(place, "select o_orderkey from orders", partition_on="o_orderkey", partition_num=3, return_type="polars")
check(parts.shape, (15000, 1))

frame = polars.read_database_uri(sql, place, engine="connectorx").sort("n_nationkey")
check(frame.row(1), (1, "ARGENTINA"))
frame = polars.read_database_uri("select min(o_orderdate) as day from orders", place)
check(frame.row(0), (datetime.date(1992, 1, 1),))
print("ok")
