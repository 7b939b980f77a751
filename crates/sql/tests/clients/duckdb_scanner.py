"""DuckDB's scanner of PostgreSQL: `duckdb_scanner.py HOST PORT`. Prints `ok` if every answer is right."""

import datetime
import decimal
import sys
from pathlib import Path

import duckdb
import duckdb_extension_postgres_scanner as scanner

host, port = sys.argv[1:]
TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]


def check(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


connection = duckdb.connect()
[extension] = Path(scanner.__file__).parent.rglob("postgres_scanner.duckdb_extension")
connection.load_extension(str(extension))
place = f"host={host} port={port} user=tester dbname=kumiki"
connection.sql(f"attach '{place}' as kumiki (type postgres, read_only)")
ask = lambda sql: connection.sql(sql).fetchall()

tables = ask("select table_name from duckdb_tables() where database_name = 'kumiki' and schema_name = 'public' order by 1")
check([name for name, in tables], TABLES)
check(ask("select n_name from kumiki.nation where n_nationkey = 3"), [("CANADA",)])
check(ask("select count(*), sum(l_quantity) from kumiki.lineitem where l_orderkey = 1"), [(6, decimal.Decimal("145.00"))])
check(ask("select min(o_orderdate), count(*) from kumiki.orders"), [(datetime.date(1992, 1, 1), 15000)])
joined = "select r_name, count(*) from kumiki.nation join kumiki.region on n_regionkey = r_regionkey group by 1 order by 1 limit 2"
check(ask(joined), [("AFRICA", 5), ("AMERICA", 5)])
check(ask("select * from postgres_query('kumiki', 'select n_nationkey, n_name from nation where n_nationkey = 1')"), [(1, "ARGENTINA")])
types = ask("select column_name, data_type from duckdb_columns() where database_name = 'kumiki' and table_name = 'lineitem' and column_name in ('l_orderkey', 'l_extendedprice', 'l_shipdate') order by 1")
check(types, [("l_extendedprice", "DECIMAL(15,2)"), ("l_orderkey", "BIGINT"), ("l_shipdate", "DATE")])
print("ok")
