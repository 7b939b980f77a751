"""asyncpg, as its users run it: `asyncpg_client.py HOST PORT`. Prints `ok` if every answer is right."""

import asyncio
import datetime
import decimal
import io
import sys

import asyncpg

host, port = sys.argv[1:]


def check(found, expected):
    assert found == expected, f"found {found!r}, expected {expected!r}"


async def main():
    place = dict(host=host, port=int(port), user="tester", database="kumiki", ssl=False)
    connection = await asyncpg.connect(**place)
    check(connection.get_server_version().major, 16)
    check(await connection.fetchval("select 1"), 1)
    row = await connection.fetchrow("select 1 as a, 'x' as b, null as c, true as d")
    check(dict(row), {"a": 1, "b": "x", "c": None, "d": True})

    # Parameters, which asyncpg always sends in their binary form.
    value = connection.fetchval
    check(await value("select n_name from nation where n_nationkey = $1", 3), "CANADA")
    check(await value("select count(*) from nation where n_name = $1", "CANADA"), 1)
    day = datetime.date(1998, 9, 2)
    check(
        await value("select count(*) from lineitem where l_shipdate <= $1", day),
        await value("select count(*) from lineitem where l_shipdate <= '1998-09-02'"),
    )
    check(await value("select $1::boolean", True), True)
    check(await value("select $1::numeric(10,2) + 1", decimal.Decimal("100.25")), decimal.Decimal("101.25"))
    check(await value("select $1::float8", 0.5), 0.5)
    check(await value("select $1::text", None), None)
    check(await value("select $1::bytea", b"\x00\xff"), b"\x00\xff")
    time = datetime.datetime(2001, 2, 3, 4, 5, 6, 700000)
    check(await value("select $1::timestamp", time), time)
    zoned = time.replace(tzinfo=datetime.timezone.utc)
    check(await value("select $1::timestamptz", zoned), zoned)
    rows = await connection.fetch("select n_name from nation where n_nationkey = any($1) order by 1", [3, 1])
    check([row["n_name"] for row in rows], ["ARGENTINA", "CANADA"])
    rows = await connection.fetch("select n_name from nation where n_nationkey = any($1::int8[]) order by 1", [3, 1])
    check([row["n_name"] for row in rows], ["ARGENTINA", "CANADA"])

    # Arrays as results.
    check(await value("select array_agg(n_nationkey order by n_nationkey) from nation where n_nationkey < 3"), [0, 1, 2])
    check(await value("select array['a b', '', 'NULL', null]"), ["a b", "", "NULL", None])
    check(await value("select array[array[1, 2], array[3, 4]]"), [[1, 2], [3, 4]])
    check(await value("select $1::text[]", ["a", None, "b"]), ["a", None, "b"])

    # A statement that is prepared, and what is known of it.
    statement = await connection.prepare("select n_name, n_nationkey from nation where n_nationkey = $1")
    check([parameter.name for parameter in statement.get_parameters()], ["int8"])
    check([(column.name, column.type.name) for column in statement.get_attributes()], [("n_name", "text"), ("n_nationkey", "int8")])
    check(await statement.fetchval(1), "ARGENTINA")

    # A cursor within a transaction, and a savepoint in it.
    async with connection.transaction():
        keys = [row[0] async for row in connection.cursor("select n_nationkey from nation order by 1", prefetch=7)]
        check(keys, list(range(25)))
        cursor = await connection.cursor("select n_nationkey from nation order by 1")
        check([row[0] for row in await cursor.fetch(3)], [0, 1, 2])
        check(await cursor.forward(2), 2)
        check((await cursor.fetchrow())[0], 5)
        try:
            async with connection.transaction():
                await connection.fetch("select nothing from nation")
            raise AssertionError("a column that is not there was found")
        except asyncpg.UndefinedColumnError as error:
            check(error.sqlstate, "42703")
        check(await value("select 2"), 2)

    # Copies.
    for more, begins in [(dict(format="csv"), b"0,AFRICA\n"), (dict(format="binary"), b"PGCOPY\n")]:
        output = io.BytesIO()
        sql = "select r_regionkey, r_name from region order by 1"
        check(await connection.copy_from_query(sql, output=output, **more), "COPY 5")
        check(output.getvalue()[: len(begins)], begins)
    output = io.BytesIO()
    check(await connection.copy_from_table("region", output=output, columns=["r_regionkey"]), "COPY 5")
    check(output.getvalue(), b"0\n1\n2\n3\n4\n")

    await connection.reload_schema_state()
    await connection.reset()
    await connection.close()

    # A pool, which resets its connections.
    async with asyncpg.create_pool(min_size=1, max_size=2, **place) as pool:
        for number in range(3):
            check(await pool.fetchval("select $1::int8", number), number)
    print("ok")


asyncio.run(main())
