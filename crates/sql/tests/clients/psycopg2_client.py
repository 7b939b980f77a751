"""psycopg 2, as its users run it: `psycopg2_client.py HOST PORT`. Prints `ok` if every answer is right."""

import datetime
import decimal
import io
import sys

import psycopg2
import psycopg2.errors
import psycopg2.extras

host, port = sys.argv[1:]


def check(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


connection = psycopg2.connect(host=host, port=port, user="tester", dbname="kumiki")
check(connection.server_version, 160006)
cursor = connection.cursor()


def one(sql, *parameters):
    cursor.execute(sql, *parameters)
    return cursor.fetchone()


check(one("select 1, 'x', null, true, 1.5::numeric(3,1)"), (1, "x", None, True, decimal.Decimal("1.5")))

# Parameters, which psycopg 2 writes into the statement.
check(one("select n_name from nation where n_nationkey = %s", (3,)), ("CANADA",))
check(one("select count(*) from nation where n_name = %s", ("CANADA",)), (1,))
day = datetime.date(1998, 9, 2)
expected = one("select count(*) from lineitem where l_shipdate <= '1998-09-02'")
check(one("select count(*) from lineitem where l_shipdate <= %s", (day,)), expected)
check(one("select %s and true", (True,)), (True,))
check(one("select %s::numeric(10,2) + 1", (decimal.Decimal("100.25"),)), (decimal.Decimal("101.25"),))
time = datetime.datetime(2001, 2, 3, 4, 5, 6, 700000)
check(one("select %s", (time,)), (time,))
zoned = time.replace(tzinfo=datetime.timezone.utc)
check(one("select %s", (zoned,)), (zoned,))
check(one("select %s", (None,)), (None,))
check(one("select %s", ("it's \\ a text",)), ("it's \\ a text",))
check(bytes(one("select %s::bytea", (b"\x00\xff",))[0]), b"\x00\xff")
cursor.execute("select n_name from nation where n_nationkey = any(%s) order by 1", ([3, 1],))
check(cursor.fetchall(), [("ARGENTINA",), ("CANADA",)])
cursor.execute("select n_name from nation where n_nationkey in %s order by 1", ((3, 1),))
check(cursor.fetchall(), [("ARGENTINA",), ("CANADA",)])

# Arrays as results.
check(one("select array['a b', '', 'NULL', null], array[array[1, 2], array[3, 4]]"), (["a b", "", "NULL", None], [[1, 2], [3, 4]]))
check(one("select array_agg(n_nationkey order by n_nationkey) from nation where n_nationkey < 3"), ([0, 1, 2],))

# Rows by name, and what is known of columns.
with connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as named:
    named.execute("select r_regionkey, r_name from region order by 1 limit 1")
    check(dict(named.fetchone()), {"r_regionkey": 0, "r_name": "AFRICA"})
    check([(column.name, column.type_code) for column in named.description], [("r_regionkey", 20), ("r_name", 25)])

# A cursor of the server.
with connection.cursor("on_server") as server:
    server.itersize = 10
    server.execute("select n_nationkey from nation order by 1")
    check([key for key, in server], list(range(25)))

# Copies.
output = io.StringIO()
cursor.copy_expert("copy (select r_regionkey, r_name from region order by 1) to stdout csv header", output)
check(output.getvalue().splitlines()[:2], ["r_regionkey,r_name", "0,AFRICA"])
output = io.StringIO()
cursor.copy_to(output, "region", columns=["r_regionkey"])
check(output.getvalue(), "0\n1\n2\n3\n4\n")

# An error ends the transaction; a savepoint keeps it.
cursor.execute("savepoint a")
try:
    cursor.execute("select nothing from nation")
    raise AssertionError("a column that is not there was found")
except psycopg2.errors.UndefinedColumn as error:
    check(error.pgcode, "42703")
cursor.execute("rollback to savepoint a")
check(one("select 2"), (2,))
connection.commit()

# Modes of the connection.
connection.set_session(readonly=True, autocommit=True)
check(one("select 3"), (3,))
connection.set_client_encoding("UTF8")
connection.reset()
check(one("select 4"), (4,))
connection.close()
print("ok")
