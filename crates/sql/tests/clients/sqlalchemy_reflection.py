"""SQLAlchemy over psycopg 2 and psycopg 3, with reflection: `sqlalchemy_reflection.py HOST PORT`. Prints `ok` if
every answer is right."""

import datetime
import sys

from sqlalchemy import MetaData, Table, create_engine, func, inspect, select, text

host, port = sys.argv[1:]
TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]


def check(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


for driver in ("psycopg2", "psycopg"):
    engine = create_engine(f"postgresql+{driver}://tester@{host}:{port}/kumiki")
    with engine.connect() as connection:
        check(connection.execute(text("select 1")).scalar(), 1)
        check(engine.dialect.default_schema_name, "public")
        check(engine.dialect.server_version_info[:2], (16, 6))

    inspector = inspect(engine)
    check(sorted(inspector.get_table_names()), TABLES)
    check("public" in inspector.get_schema_names(), True)
    check(sorted(inspector.get_table_names(schema="public")), TABLES)
    check(inspector.get_view_names(), [])
    check(inspector.has_table("nation"), True)
    check(inspector.has_table("nowhere"), False)
    columns = inspector.get_columns("lineitem")
    types = {column["name"]: str(column["type"]) for column in columns}
    check(columns[0]["name"], "l_orderkey")
    check(types["l_orderkey"], "BIGINT")
    check(types["l_shipdate"], "DATE")
    check(types["l_comment"], "TEXT")
    check(types["l_extendedprice"], "NUMERIC(15, 2)")
    check(len(columns), 16)
    check(inspector.get_pk_constraint("nation")["constrained_columns"], [])
    check(inspector.get_foreign_keys("nation"), [])
    check(inspector.get_indexes("nation"), [])
    check(inspector.get_unique_constraints("nation"), [])
    check(inspector.get_check_constraints("nation"), [])
    check(inspector.get_table_comment("nation"), {"text": None})

    nation = Table("nation", MetaData(), autoload_with=engine)
    check([column.name for column in nation.columns], ["n_nationkey", "n_name", "n_regionkey", "n_comment"])
    lineitem = Table("lineitem", MetaData(), autoload_with=engine)
    everything = MetaData()
    everything.reflect(engine)
    check(sorted(everything.tables), TABLES)
    region = everything.tables["region"]
    joined = everything.tables["nation"]

    with engine.connect() as connection:
        ask = lambda statement: [tuple(row) for row in connection.execute(statement)]
        check(ask(select(nation.c.n_name).where(nation.c.n_nationkey == 3)), [("CANADA",)])
        check(ask(select(nation.c.n_name).where(nation.c.n_nationkey.in_([3, 1])).order_by("n_name")), [("ARGENTINA",), ("CANADA",)])
        day = lineitem.c.l_shipdate <= datetime.date(1998, 9, 2)
        expected = connection.execute(text("select count(*) from lineitem where l_shipdate <= '1998-09-02'")).scalar()
        check(ask(select(func.count()).select_from(lineitem).where(day)), [(expected,)])
        grouped = (
            select(region.c.r_name, func.count())
            .join_from(joined, region, joined.c.n_regionkey == region.c.r_regionkey)
            .group_by(region.c.r_name)
            .order_by(region.c.r_name)
            .limit(2)
        )
        check(ask(grouped), [("AFRICA", 5), ("AMERICA", 5)])
        streamed = connection.execution_options(stream_results=True, max_row_buffer=10)
        check([row[0] for row in streamed.execute(select(nation.c.n_nationkey).order_by(nation.c.n_nationkey))], list(range(25)))
    engine.dispose()
print("ok")
