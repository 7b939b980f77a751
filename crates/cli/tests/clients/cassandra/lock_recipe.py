"""The lock recipe by the Python driver: `lock_recipe.py HOST PORT KEYSPACE [PROTOCOL]`.

It makes the tables KEYSPACE.locks and KEYSPACE.leases, takes, renews, gives and loses locks on them,
and prints one line for each step: what the driver says was applied, and the names, types and values
of the row. There are no times in the lines, so that those of two runs are alike, whatever stands
between the driver and the nodes.
"""

import logging
import sys
import time
import uuid

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import UNSET_VALUE, SimpleStatement, tuple_factory

host, port, keyspace = sys.argv[1], int(sys.argv[2]), sys.argv[3]
protocol = int(sys.argv[4]) if len(sys.argv) > 4 else 5
logging.disable(logging.CRITICAL)

ID = uuid.UUID("00000000-0000-4000-8000-000000000001")
# Longer than the shortest lease, in seconds.
LEASE_ENDS = 9


def say(step, found):
    print(f"{step}: {found}", flush=True)


def told(step, result):
    """What a conditional statement was answered."""
    # The driver tells before the rows are taken.
    applied = result.was_applied
    rows = [tuple(str(value) for value in row) for row in result]
    types = [kind.typename for kind in result.column_types or []]
    say(step, [applied, result.column_names, types, rows])


def again(step, result):
    """The rows of a read."""
    types = [kind.typename for kind in result.column_types or []]
    say(step, [result.column_names, types, [tuple(str(value) for value in row) for row in result]])


def refused(step, action):
    try:
        action()
    except Exception as error:
        if isinstance(error, NoHostAvailable):
            (error,) = error.errors.values()
        say(step, f"{type(error).__name__} {str(error).replace(keyspace, 'KEYSPACE')}")
    else:
        say(step, "not refused")


def as_text(session):
    run = session.execute
    insert = "INSERT INTO locks (name, owner) VALUES (%s, %s) IF NOT EXISTS USING TTL 600"
    again("text, nobody's", run("SELECT * FROM locks WHERE name = 'door'"))
    again("text, nobody's, some columns", run("SELECT owner, name FROM locks WHERE name = 'door'"))
    told("text, taken", run(insert, ("door", "anna")))
    told("text, held", run(insert, ("door", "bert")))
    told("text, held by the same", run(insert, ("door", "anna")))
    again("text, its holder", run("SELECT * FROM locks WHERE name = 'door'"))
    again("text, renamed", run("SELECT owner AS who FROM locks WHERE name = 'door' LIMIT 1"))
    told("text, renewed", run("UPDATE locks USING TTL 600 SET owner = 'anna' WHERE name = 'door' IF owner = 'anna'"))
    told("text, renewed by another", run("UPDATE locks USING TTL 600 SET owner = 'bert' WHERE name = 'door' IF owner = 'bert'"))
    told("text, two conditions", run("UPDATE locks USING TTL 600 SET note = 'n' WHERE name = 'door' IF owner = 'anna' AND note = 'x'"))
    told("text, two conditions hold", run("UPDATE locks USING TTL 600 SET note = 'n' WHERE name = 'door' IF owner = 'anna' AND note = null"))
    told("text, if there", run("UPDATE locks USING TTL 600 SET note = null WHERE name = 'door' IF EXISTS"))
    told("text, if there, absent", run("UPDATE locks USING TTL 600 SET note = 'n' WHERE name = 'window' IF EXISTS"))
    told("text, renewed, absent", run("UPDATE locks USING TTL 600 SET note = 'n' WHERE name = 'window' IF owner = 'anna'"))
    told("text, given by another", run("DELETE FROM locks WHERE name = 'door' IF owner = 'bert'"))
    told("text, given", run("DELETE FROM locks WHERE name = 'door' IF owner = 'anna'"))
    told("text, given, absent", run("DELETE FROM locks WHERE name = 'door' IF owner = 'anna'"))
    told("text, given if there, absent", run("DELETE FROM locks WHERE name = 'door' IF EXISTS"))
    told("text, without a lease", run("INSERT INTO locks (name, owner) VALUES ('gate', 'carl') IF NOT EXISTS"))
    told("text, given if there", run("DELETE FROM locks WHERE name = 'gate' IF EXISTS"))
    told("text, made by a condition", run("UPDATE locks USING TTL 600 SET owner = 'dora' WHERE name = 'hatch' IF owner = null"))
    again("text, so made", run("SELECT * FROM locks WHERE name = 'hatch'"))
    told("text, gone with its columns", run("UPDATE locks SET owner = null WHERE name = 'hatch' IF owner = 'dora'"))
    again("text, gone", run("SELECT * FROM locks WHERE name = 'hatch'"))


def prepared(session):
    take = session.prepare("INSERT INTO locks (name, owner, note) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?")
    renew = session.prepare("UPDATE locks USING TTL ? SET owner = ? WHERE name = ? IF owner = ?")
    give = session.prepare("DELETE FROM locks WHERE name = ? IF owner = ?")
    holder = session.prepare("SELECT owner, note FROM locks WHERE name = ?")
    for name, statement in (("take", take), ("renew", renew), ("give", give), ("holder", holder)):
        columns = [(column.name, column.type.typename) for column in statement.column_metadata]
        say(f"prepared, {name}", [columns, statement.routing_key_indexes, len(statement.result_metadata or [])])
    run = session.execute
    told("prepared, taken", run(take, ("wall", "anna", "why", 600)))
    told("prepared, held", run(take, ("wall", "bert", None, 600)))
    again("prepared, its holder", run(holder, ("wall",)))
    told("prepared, renewed", run(renew, (600, "anna", "wall", "anna")))
    told("prepared, passed on", run(renew, (600, "bert", "wall", "anna")))
    told("prepared, passed on by the same", run(renew, (600, "bert", "wall", "anna")))
    again("prepared, its next holder", run(holder, ("wall",)))
    told("prepared, given by another", run(give, ("wall", "anna")))
    told("prepared, given", run(give, ("wall", "bert")))
    again("prepared, nobody's", run(holder, ("wall",)))
    told("prepared, unset", run(take, ("fence", "anna", UNSET_VALUE, UNSET_VALUE)))
    again("prepared, unset, its holder", run(holder, ("fence",)))
    told("prepared, short", run(take, ("short", "anna", "n", 6)))
    told("prepared, short, held", run(take, ("short", "bert", "n", 6)))
    time.sleep(LEASE_ENDS)
    again("prepared, its lease has ended", run(holder, ("short",)))
    told("prepared, taken over", run(take, ("short", "bert", "n", 600)))
    futures = [session.execute_async(take, ("race", f"client {number}", None, 600)) for number in range(100)]
    say("prepared, at once", sum(future.result().was_applied for future in futures))
    plain = session.prepare("DELETE FROM locks WHERE name = ?")
    say("prepared, deleted", run(plain, ("race",)).column_names)
    again("prepared, deleted, nobody's", run(holder, ("race",)))


def key_of_two(session):
    take = session.prepare("INSERT INTO leases (shard, name, owner, host, epoch, live) VALUES (?, ?, ?, ?, ?, ?) IF NOT EXISTS USING TTL 600")
    run = session.execute
    told("two, taken", run(take, (1, "a", ID, "127.0.0.1", 2**40, True)))
    told("two, another", run(take, (1, "b", ID, "::1", -1, None)))
    told("two, held", run(take, (1, "a", ID, "127.0.0.1", 2**40, False)))
    renew = session.prepare("UPDATE leases USING TTL 600 SET epoch = ? WHERE name = ? AND shard = ? IF owner = ? AND epoch = ?")
    told("two, renewed", run(renew, (2**41, "a", 1, ID, 2**40)))
    told("two, renewed too late", run(renew, (2**41, "a", 1, ID, 2**40)))
    again("two, its holder", run("SELECT * FROM leases WHERE shard = 1 AND name = 'b'"))
    told("two, as text", run("DELETE FROM leases WHERE shard = 1 AND name = 'b' IF owner = 00000000-0000-4000-8000-000000000001 AND host = '::1'"))
    told("two, given", run("DELETE FROM leases WHERE shard = 1 AND name = 'a' IF live = true"))


def errors(session):
    run = session.execute
    refused("error of a column", lambda: run("INSERT INTO locks (name, nothing) VALUES ('a', 'b') IF NOT EXISTS"))
    refused("error of a selected column", lambda: run("SELECT nothing FROM locks WHERE name = 'a'"))
    refused("error of the key", lambda: run("INSERT INTO locks (owner) VALUES ('b') IF NOT EXISTS"))
    refused("error of the whole key", lambda: run("INSERT INTO leases (shard) VALUES (1) IF NOT EXISTS"))
    refused("error of a lease", lambda: run("INSERT INTO locks (name) VALUES ('b') IF NOT EXISTS USING TTL -1"))
    refused("error of a long lease", lambda: run("INSERT INTO locks (name) VALUES ('b') IF NOT EXISTS USING TTL 700000000"))
    refused("error of a set key", lambda: run("UPDATE locks SET name = 'a' WHERE name = 'b' IF EXISTS"))
    refused("error of a condition", lambda: run("UPDATE locks SET owner = 'a' WHERE name = 'b' IF name = 'b'"))
    refused("error of an empty key", lambda: run("DELETE FROM locks WHERE name = '' IF EXISTS"))
    refused("error when preparing", lambda: session.prepare("DELETE FROM locks WHERE nobody = ? IF owner = ?"))
    refused("error of a table", lambda: run("SELECT * FROM keys WHERE name = 'a'"))


profile = ExecutionProfile(
    load_balancing_policy=WhiteListRoundRobinPolicy([host]),
    row_factory=tuple_factory,
    request_timeout=60,
)
cluster = Cluster(
    [host],
    port=port,
    protocol_version=protocol,
    execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    connect_timeout=30,
    control_connection_timeout=30,
    schema_event_refresh_window=-1,
)
session = cluster.connect()
session.execute(
    f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
)
session.execute(f"USE {keyspace}")
session.execute("CREATE TABLE locks (name text PRIMARY KEY, owner text, note text)")
session.execute(
    "CREATE TABLE leases (shard int, name text, owner uuid, host inet, epoch bigint, live boolean, PRIMARY KEY (shard, name))"
)
as_text(session)
prepared(session)
key_of_two(session)
errors(session)
# A table that is made anew has no locks of the one before.
session.execute("DROP TABLE locks")
session.execute("CREATE TABLE locks (name text PRIMARY KEY, owner text, note text)")
again("made anew", session.execute("SELECT * FROM locks WHERE name = 'short'"))
session.execute("ALTER TABLE locks ADD more int")
told("grown", session.execute("INSERT INTO locks (name, more) VALUES ('short', 5) IF NOT EXISTS"))
told("grown, held", session.execute("INSERT INTO locks (name, more) VALUES ('short', 5) IF NOT EXISTS"))
session.execute(f"DROP KEYSPACE {keyspace}")
cluster.shutdown()
print("done")
