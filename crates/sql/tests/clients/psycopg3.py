"""psycopg 3, as its users run it: `psycopg3.py HOST PORT`. Prints `ok` if every answer is right."""

import datetime
import decimal
import sys

import psycopg
from psycopg.rows import dict_row

host, port = sys.argv[1:]
place = f"host={host} port={port} user=tester dbname=kumiki"


def check(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


with psycopg.connect(place) as connection:
    check(connection.info.server_version, 160006)
    one = lambda sql, *parameters, **more: connection.execute(sql, *parameters, **more).fetchone()
    check(one("select 1, 'x', null, true, 1.5::numeric(3,1)"), (1, "x", None, True, decimal.Decimal("1.5")))

    # Parameters of each type, as texts and in their binary form.
    day = datetime.date(1998, 9, 2)
    for form in ("%s", "%b", "%t"):
        check(one(f"select n_name from nation where n_nationkey = {form}", (3,)), ("CANADA",))
        check(one(f"select count(*) from nation where n_name = {form}", ("CANADA",)), (1,))
        sql = f"select count(*) from lineitem where l_shipdate <= {form}"
        check(one(sql, (day,)), one("select count(*) from lineitem where l_shipdate <= '1998-09-02'"))
        check(one(f"select n_name from nation where n_nationkey = 3 and {form}", (True,)), ("CANADA",))
        price = decimal.Decimal("100.25")
        check(one(f"select {form}::numeric(10,2) + 1", (price,)), (decimal.Decimal("101.25"),))
        check(one(f"select {form}::float8", (0.5,)), (0.5,))
        time = datetime.datetime(2001, 2, 3, 4, 5, 6, 700000)
        check(one(f"select {form}::timestamp", (time,)), (time,))
        zoned = time.replace(tzinfo=datetime.timezone.utc)
        check(one(f"select {form}::timestamptz", (zoned,)), (zoned,))
        check(one(f"select {form}::text", (None,)), (None,))
        names = connection.execute(
            f"select n_name from nation where n_nationkey = any({form}) order by 1", ([3, 1],)
        )
        check(names.fetchall(), [("ARGENTINA",), ("CANADA",)])
        check(one(f"select count(*) from nation where n_name = any({form})", (["CANADA", "PERU"],)), (2,))

    # Arrays as results, and all else in the binary form.
    for binary in (False, True):
        sql = "select array_agg(n_nationkey order by n_nationkey), array_agg(n_name order by n_name) from nation where n_nationkey < 3"
        check(one(sql, binary=binary), ([0, 1, 2], ["ALGERIA", "ARGENTINA", "BRAZIL"]))
        check(one("select array[1, null, 3], array[array[1, 2], array[3, 4]]", binary=binary), ([1, None, 3], [[1, 2], [3, 4]]))
        check(one("select array['a b', '', 'NULL', null]", binary=binary), (["a b", "", "NULL", None],))
        check(one("select min(l_shipdate), count(*) from lineitem where l_shipdate > '1998-12-01'", binary=binary)[0], one("select min(l_shipdate) from lineitem where l_shipdate > '1998-12-01'")[0])
        check(one("select sum(l_quantity) from lineitem where l_orderkey = 1", binary=binary), (decimal.Decimal("145.00"),))

    # A statement that is prepared, and one that is prepared of itself after some executions.
    for prepare in (True, None):
        for key, name in [(0, "ALGERIA"), (1, "ARGENTINA")] * 4:
            sql = "select n_name from nation where n_nationkey = %s"
            check(one(sql, (key,), prepare=prepare), (name,))

    # Cursors of the client, and those of the server.
    with connection.cursor(row_factory=dict_row) as cursor:
        cursor.execute("select r_regionkey, r_name from region order by 1")
        check(cursor.fetchmany(2), [{"r_regionkey": 0, "r_name": "AFRICA"}, {"r_regionkey": 1, "r_name": "AMERICA"}])
        check(len(cursor.fetchall()), 3)
        check([column.name for column in cursor.description], ["r_regionkey", "r_name"])
        check([column.type_code for column in cursor.description], [20, 25])
    for binary in (False, True):
        with connection.cursor("named", binary=binary) as cursor:
            cursor.itersize = 10
            cursor.execute("select n_nationkey from nation where n_regionkey >= %s order by 1", (0,))
            check(cursor.fetchmany(3), [(0,), (1,), (2,)])
            check([key for key, in cursor], list(range(3, 25)))

    # Copies, as text and in the binary form.
    with connection.cursor() as cursor:
        with cursor.copy("copy (select r_regionkey, r_name from region order by 1) to stdout") as copy:
            check(b"".join(copy).splitlines()[0], b"0\tAFRICA")
        with cursor.copy("copy (select r_regionkey, r_name from region order by 1) to stdout (format binary)") as copy:
            copy.set_types(["int8", "text"])
            check([row for row in copy.rows()][4], (4, "MIDDLE EAST"))
    connection.commit()

    # A transaction, within it a savepoint, and an error.
    with connection.transaction():
        try:
            with connection.transaction():
                connection.execute("select nothing from nation")
            raise AssertionError("a column that is not there was found")
        except psycopg.errors.UndefinedColumn as error:
            check(error.sqlstate, "42703")
        check(one("select 2"), (2,))

    # Many at once.
    with connection.pipeline():
        several = [connection.execute("select %s::int8", (number,)) for number in range(5)]
        check([cursor.fetchone()[0] for cursor in several], list(range(5)))
    with connection.cursor() as cursor:
        sql = "select n_name from nation where n_nationkey = %s"
        cursor.executemany(sql, [(0,), (1,)], returning=True)
        check([cursor.fetchone() for _ in cursor.results()], [("ALGERIA",), ("ARGENTINA",)])

print("ok")
