"""What the Python driver does with Cassandra: `driver_program.py HOST PORT KEYSPACE [PROTOCOL [USER
PASSWORD]]`.

It does the same each time and prints one line for each step, in which there are no times, ids or
addresses. So the lines of two runs are alike, whatever stands between the driver and the nodes.
The keyspace is made anew, and dropped in the end.
"""

import datetime
import decimal
import logging
import sys
import time
import uuid

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import (
    BatchStatement,
    UNSET_VALUE,
    BatchType,
    SimpleStatement,
    named_tuple_factory,
)

host, port, keyspace = sys.argv[1], int(sys.argv[2]), sys.argv[3]
protocol = int(sys.argv[4]) if len(sys.argv) > 4 else 5
user = PlainTextAuthProvider(*sys.argv[5:7]) if len(sys.argv) > 6 else None
# The driver logs what it thinks of a server; the lines below are what counts.
logging.disable(logging.CRITICAL)

ID = uuid.UUID("00000000-0000-4000-8000-000000000001")
TIME = datetime.datetime(2020, 2, 29, 12, 30, 45, 678000)
# Longer than the shortest lease, in seconds.
LEASE_ENDS = 3


def say(step, found):
    print(f"{step}: {found}", flush=True)


def rows(result):
    """Rows as text that does not depend on the order of maps and sets."""
    return [[plain(value) for value in row] for row in result]


def plain(value):
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="milliseconds")
    if hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in value._fields}
    if hasattr(value, "items"):
        return {str(plain(key)): plain(one) for key, one in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if hasattr(value, "__iter__"):
        return sorted(plain(one) for one in value)
    return str(value)


def refused(step, action):
    """Says how an action fails: the error's kind, and the server's words without the driver's."""
    try:
        action()
    except Exception as error:
        if isinstance(error, NoHostAvailable):
            # It names the node; what that said is of interest.
            (error,) = error.errors.values()
        text = str(error).replace(keyspace, "KEYSPACE")
        say(step, f"{type(error).__name__} {text}")
    else:
        say(step, "not refused")


def simple(session):
    session.execute(
        "CREATE TABLE simple (k text PRIMARY KEY, b blob, i int, l bigint, u uuid, t timestamp,"
        " f boolean, d double, n decimal, names list<text>, ages map<text, int>, tags set<int>)"
    )
    session.execute("INSERT INTO simple (k, b, i, l) VALUES ('literal', 0x00ff, -7, 9223372036854775807)")
    session.execute(
        "INSERT INTO simple (k, b, i, l, u, t) VALUES (%s, %s, %s, %s, %s, %s)",
        ("bound", b"\x00\x01", 2147483647, -(2**63), ID, TIME),
    )
    for key in ("literal", "bound", "absent"):
        say(f"simple {key}", rows(session.execute("SELECT k, b, i, l, u, t FROM simple WHERE k = %s", (key,))))
    named = {"key": "named", "number": 42}
    session.execute("INSERT INTO simple (k, i) VALUES (%(key)s, %(number)s)", named)
    say("simple named", rows(session.execute("SELECT k, i FROM simple WHERE k = %(key)s", named)))


def prepared(session):
    insert = session.prepare(
        "INSERT INTO simple (k, b, i, l, u, t, f, d, n, names, ages, tags)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    say("prepared parameters", [column.name for column in insert.column_metadata])
    say("prepared key", insert.routing_key_indexes)
    values = (
        "all", b"\xff" * 5, 1, 2, ID, TIME, True, 0.5, decimal.Decimal("12345678901234567890.05"),
        ["one", "two", "one"], {"anna": 30, "bert": -1}, {3, 1, 2},
    )
    select = session.prepare("SELECT * FROM simple WHERE k = ?")
    session.execute(insert, values)
    say("prepared all", [plain(row) for row in session.execute(select, ("all",))])
    session.execute(insert, ("nulls",) + (None,) * 11)
    say("prepared nulls", [plain(row) for row in session.execute(select, ("nulls",))])
    # What is unset stays; what is null goes.
    session.execute(insert, ("all", None) + (UNSET_VALUE,) * 10)
    say("prepared unset", [plain(row) for row in session.execute(select, ("all",))])
    session.execute(insert, ("empty", b"", 0, 0, ID, TIME, False, 0.0, decimal.Decimal(0), [], {}, set()))
    say("prepared empty", [plain(row) for row in session.execute(select, ("empty",))])
    named = session.prepare("UPDATE simple SET i = :number, l = :other WHERE k = :key")
    session.execute(named, {"key": "all", "number": 77, "other": 78})
    say("prepared named", rows(session.execute("SELECT i, l FROM simple WHERE k = 'all'")))
    session.execute(session.prepare("DELETE FROM simple WHERE k = ?"), ("nulls",))
    say("prepared delete", rows(session.execute(select, ("nulls",))))
    many = session.prepare("SELECT k FROM simple WHERE k IN ?")
    say("prepared in", sorted(rows(session.execute(many, (["all", "literal", "absent"],)))))
    futures = [session.execute_async(select, ("all",)) for _ in range(300)]
    say("prepared at once", {future.result().one().i for future in futures})
    # Between the text and a long value lies the end of a frame.
    long = bytes(range(256)) * 1200
    session.execute(insert, ("long", long) + (None,) * 10)
    say("prepared long", session.execute(select, ("long",)).one().b == long)


def user_types(cluster, session):
    session.execute("CREATE TYPE address (street text, number int)")
    session.execute("CREATE TABLE people (k int PRIMARY KEY, home frozen<address>, pair tuple<int, text>, names list<frozen<address>>)")
    session.execute("INSERT INTO people (k, home) VALUES (1, {street: 'Ring', number: 5})")
    insert = session.prepare("INSERT INTO people (k, home, pair, names) VALUES (?, ?, ?, ?)")
    address = cluster.metadata.keyspaces[keyspace].user_types["address"]
    say("type", [address.name, address.field_names, address.field_types])
    session.execute(insert, (2, ("Weg", 6), (7, "seven"), [("a", 1), ("b", None)]))
    select = "SELECT home, pair, names FROM people WHERE k = %s"
    for key in (1, 2):
        say(f"type {key}", rows(session.execute(select, (key,))))


def batches(session):
    session.execute("CREATE TABLE items (k int, c int, v text, PRIMARY KEY (k, c))")
    session.execute("CREATE TABLE counts (k text PRIMARY KEY, n counter)")
    insert = session.prepare("INSERT INTO items (k, c, v) VALUES (?, ?, ?)")
    for kind, key in ((BatchType.LOGGED, 1), (BatchType.UNLOGGED, 2)):
        batch = BatchStatement(kind)
        for number in range(4):
            batch.add(insert, (key, number, f"value {number}"))
        batch.add(SimpleStatement("UPDATE items SET v = 'text' WHERE k = %s AND c = 9"), (key,))
        batch.add("DELETE FROM items WHERE k = %s AND c = 0", (key,))
        session.execute(batch)
        say(f"batch {key}", rows(session.execute("SELECT c, v FROM items WHERE k = %s", (key,))))
    add = session.prepare("UPDATE counts SET n = n + ? WHERE k = ?")
    batch = BatchStatement(BatchType.COUNTER)
    for key, amount in (("a", 5), ("b", -3), ("a", 1)):
        batch.add(add, (amount, key))
    session.execute(batch)
    say("batch of counters", sorted(rows(session.execute("SELECT k, n FROM counts"))))
    session.execute("BEGIN BATCH INSERT INTO items (k, c) VALUES (3, 1); INSERT INTO items (k, c) VALUES (3, 2); APPLY BATCH")
    say("batch as text", rows(session.execute("SELECT c FROM items WHERE k = 3")))
    mixed = BatchStatement(BatchType.LOGGED)
    mixed.add(add, (1, "a"))
    refused("batch of counters and others", lambda: session.execute(mixed))
    conditional = BatchStatement(BatchType.LOGGED)
    conditional.add("INSERT INTO items (k, c, v) VALUES (4, 1, 'x') IF NOT EXISTS")
    conditional.add("INSERT INTO items (k, c, v) VALUES (4, 2, 'y') IF NOT EXISTS")
    say("batch with a condition", rows(session.execute(conditional)))
    say("batch with a condition, again", [row[0] for row in session.execute(conditional)])
    # Cassandra warns of what is larger than 5 KiB and touches several partitions.
    large = BatchStatement(BatchType.UNLOGGED)
    for number in range(20):
        large.add(insert, (100 + number, 0, "x" * 500))
    future = session.execute_async(large)
    future.result()
    say("batch that is large", [("exceeding" in text) for text in future.warnings or []])


def paging(session):
    insert = session.prepare("INSERT INTO items (k, c, v) VALUES (50, ?, ?)")
    for number in range(50):
        session.execute(insert, (number, f"page {number}"))
    statements = {
        "simple": (SimpleStatement("SELECT c FROM items WHERE k = 50", fetch_size=7), None),
        "prepared": (session.prepare("SELECT c FROM items WHERE k = ?"), (50,)),
    }
    statements["prepared"][0].fetch_size = 7
    for name, (statement, values) in statements.items():
        result, pages = session.execute(statement, values), []
        while True:
            pages.append(len(result.current_rows))
            if not result.has_more_pages:
                break
            result.fetch_next_page()
        say(f"pages {name}", pages)
        say(f"pages {name}, all", [row[0] for row in session.execute(statement, values)] == list(range(50)))
    # A page is found again by its state, on another connection too.
    first = session.execute(statements["simple"][0])
    rest = session.execute(statements["simple"][0], paging_state=first.paging_state)
    say("pages by state", [row[0] for row in rest.current_rows])
    everything = session.execute(SimpleStatement("SELECT k, c FROM items WHERE k IN (1, 2, 50)", fetch_size=7))
    say("pages over partitions", len(list(everything)))


def transactions(session):
    session.execute("CREATE TABLE locks (name text PRIMARY KEY, owner text)")
    acquire = session.prepare("INSERT INTO locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 600")
    renew = session.prepare("UPDATE locks USING TTL 600 SET owner = ? WHERE name = ? IF owner = ?")
    release = session.prepare("DELETE FROM locks WHERE name = ? IF owner = ?")
    holder = session.prepare("SELECT owner FROM locks WHERE name = ?")
    left = session.prepare("SELECT ttl(owner) FROM locks WHERE name = ?")

    def step(name, statement, values):
        result = session.execute(statement, values)
        row = result.one()
        say(name, [result.was_applied, list(row._fields), plain(row)])

    step("lock", acquire, ("door", "anna"))
    step("lock, held", acquire, ("door", "bert"))
    step("lock, held by the same", acquire, ("door", "anna"))
    say("lock, its holder", rows(session.execute(holder, ("door",))))
    say("lock, its time", 0 < session.execute(left, ("door",)).one()[0] <= 600)
    step("renew", renew, ("anna", "door", "anna"))
    step("renew, not the holder", renew, ("bert", "door", "bert"))
    step("renew, absent", renew, ("bert", "window", "bert"))
    step("release, not the holder", release, ("door", "bert"))
    step("release", release, ("door", "anna"))
    step("release, absent", release, ("door", "anna"))
    say("lock, nobody's", rows(session.execute(holder, ("door",))))
    step("lock, again", acquire, ("door", "bert"))
    text = "INSERT INTO locks (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL 1"
    step("lock as text", SimpleStatement(text), ("short", "anna"))
    time.sleep(LEASE_ENDS)
    step("lock, its lease has ended", acquire, ("short", "bert"))
    step("renew by text", SimpleStatement("UPDATE locks SET owner = 'carl' WHERE name = 'short' IF owner = 'bert'"), None)
    step("release as text", SimpleStatement("DELETE FROM locks WHERE name = %s IF owner = %s"), ("short", "carl"))
    step("delete if there", SimpleStatement("DELETE FROM locks WHERE name = 'door' IF EXISTS"), None)
    serial = SimpleStatement("SELECT owner FROM locks WHERE name = 'door'", consistency_level=ConsistencyLevel.SERIAL)
    say("serial read", rows(session.execute(serial)))
    session.execute("INSERT INTO items (k, c, v) VALUES (7, 7, 'seven')")
    step("compare and set", SimpleStatement("UPDATE items SET v = 'eight' WHERE k = 7 AND c = 7 IF v = 'seven'"), None)
    step("compare and set, failed", SimpleStatement("UPDATE items SET v = 'nine' WHERE k = 7 AND c = 7 IF v IN ('a', 'b')"), None)


def schema(session):
    session.execute("CREATE TABLE grows (k int PRIMARY KEY, a text)")
    insert = session.prepare("INSERT INTO grows (k, a) VALUES (?, ?)")
    select = session.prepare("SELECT * FROM grows WHERE k = ?")
    session.execute(insert, (1, "one"))
    say("schema before", [plain(row) for row in session.execute(select, (1,))])
    session.execute("ALTER TABLE grows ADD b int")
    session.execute(insert, (2, "two"))
    session.execute("UPDATE grows SET b = 5 WHERE k = 2")
    # In version 4 the driver goes on with the columns that it was told when it prepared.
    fresh = session.prepare("SELECT k, a, b FROM grows WHERE k = ?")
    say("schema after, prepared anew", [plain(row) for row in session.execute(fresh, (2,))])
    after = [plain(row) for row in session.execute(select, (2,))] if protocol >= 5 else "not asked"
    say("schema after", after)
    session.execute("DROP TABLE grows")
    refused("schema, table dropped", lambda: session.execute(insert, (3, "three")))


def errors(session):
    refused("error of syntax", lambda: session.execute("SELEC * FROM simple"))
    refused("error of a table", lambda: session.execute("SELECT * FROM nowhere"))
    refused("error of a column", lambda: session.execute("SELECT nothing FROM simple"))
    refused("error of a type", lambda: session.execute("INSERT INTO simple (k, i) VALUES ('x', 'text')"))
    refused("error of a key", lambda: session.execute("SELECT * FROM items WHERE c = 1"))
    refused("error of a keyspace", lambda: session.execute("SELECT * FROM nowhere_at_all.simple"))
    refused("error, there already", lambda: session.execute("CREATE TABLE simple (k int PRIMARY KEY)"))
    refused("error when preparing", lambda: session.prepare("SELECT * FROM nowhere WHERE k = ?"))
    refused("error of replicas", lambda: session.execute(
        SimpleStatement("SELECT * FROM simple WHERE k = 'all'", consistency_level=ConsistencyLevel.THREE)))
    # The connection is none the worse.
    say("after errors", rows(session.execute("SELECT k FROM simple WHERE k = 'all'")))


def tracing(session):
    result = session.execute("SELECT k FROM simple WHERE k = 'all'", trace=True)
    trace = result.get_query_trace(max_wait_sec=60)
    say("trace", [trace.request_type, trace.parameters.get("query"), len(trace.events) > 3])


def system(cluster, session):
    row = session.execute("SELECT key, cluster_name, partitioner, native_protocol_version FROM system.local").one()
    say("local", [row.key, row.partitioner])
    say("local by key", len(list(session.execute("SELECT * FROM system.local WHERE key = 'local'"))))
    columns = session.execute(
        "SELECT column_name, kind, type FROM system_schema.columns WHERE keyspace_name = %s AND table_name = 'items'",
        (keyspace,),
    )
    say("columns", sorted(rows(columns)))
    tables = cluster.metadata.keyspaces[keyspace].tables
    say("tables", sorted(tables))
    say("protocol", cluster.protocol_version)


def ends(session):
    session.execute("TRUNCATE items")
    say("truncated", rows(session.execute("SELECT * FROM items")))
    session.execute(f"DROP KEYSPACE {keyspace}")
    refused("dropped", lambda: session.execute("SELECT * FROM items"))


profile = ExecutionProfile(
    load_balancing_policy=WhiteListRoundRobinPolicy([host]),
    row_factory=named_tuple_factory,
    request_timeout=60,
)
cluster = Cluster(
    [host],
    port=port,
    auth_provider=user,
    protocol_version=protocol,
    execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    connect_timeout=30,
    control_connection_timeout=30,
    # The schema is asked for after each statement that changes it, not also when its event comes,
    # which may be late.
    schema_event_refresh_window=-1,
)
session = cluster.connect()
session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
session.execute(
    f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
)
session.execute(f"USE {keyspace}")
say("keyspace", session.keyspace == keyspace)
simple(session)
prepared(session)
user_types(cluster, session)
batches(session)
paging(session)
transactions(session)
schema(session)
errors(session)
tracing(session)
system(cluster, session)
ends(session)
cluster.shutdown()
print("done")
