"""ODBC by Debian's driver and pyodbc: `odbc.py HOST PORT`. Prints `ok` if every answer is right."""

import datetime
import decimal
import sys

import pyodbc

host, port = sys.argv[1:]
TABLES = ["customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier"]


def check(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


driver = "Driver={PostgreSQL Unicode}"
for more in ("", ";UseDeclareFetch=1;Fetch=10", ";UseServerSidePrepare=0"):
    place = f"{driver};Server={host};Port={port};Uid=tester;Database=kumiki;SSLmode=disable{more}"
    connection = pyodbc.connect(place)
    cursor = connection.cursor()
    one = lambda sql, *parameters: tuple(cursor.execute(sql, *parameters).fetchone())
    check(one("select 1, 'x', null, 1.5::numeric(3,1)"), (1, "x", None, decimal.Decimal("1.5")))
    check(one("select n_name from nation where n_nationkey = ?", 3), ("CANADA",))
    check(one("select count(*) from nation where n_name = ?", "CANADA"), (1,))
    day = datetime.date(1998, 9, 2)
    expected = one("select count(*) from lineitem where l_shipdate <= '1998-09-02'")
    check(one("select count(*) from lineitem where l_shipdate <= ?", day), expected)
    check(one("select l_shipdate, l_quantity from lineitem where l_orderkey = ? and l_linenumber = ?", 1, 1), (datetime.date(1996, 3, 13), decimal.Decimal("17.00")))
    check(one("select o_totalprice < ? from orders where o_orderkey = 1", decimal.Decimal("0.5")), one("select false"))
    time = datetime.datetime(2001, 2, 3, 4, 5, 6, 700000)
    check(one("select ?::timestamp", time), (time,))
    rows = cursor.execute("select n_nationkey from nation order by 1").fetchall()
    check([row[0] for row in rows], list(range(25)))
    try:
        cursor.execute("select nothing from nation")
        raise AssertionError("a column that is not there was found")
    except pyodbc.Error as error:
        check(error.args[0], "42703")
    connection.rollback()
    check(sorted(row.table_name for row in cursor.tables(schema="public", tableType="TABLE")), TABLES)
    columns = [(row.column_name, row.type_name) for row in cursor.columns(table="nation")]
    check(columns, [("n_nationkey", "int8"), ("n_name", "text"), ("n_regionkey", "int8"), ("n_comment", "text")])
    check(list(cursor.primaryKeys("nation")), [])
    connection.close()
print("ok")
