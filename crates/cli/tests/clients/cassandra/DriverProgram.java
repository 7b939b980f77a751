// What the Java driver does with Cassandra: `DriverProgram.java HOST PORT KEYSPACE [PROTOCOL [USER PASSWORD]]`.
//
// It does the same each time and prints one line for each step, in which there are no times, ids or
// addresses. So the lines of two runs are alike, whatever stands between the driver and the nodes.
// The keyspace is made anew, and dropped in the end. The environment variable COMPRESSION may be lz4 or snappy.
//
// Java runs it from its source: java -cp 'target/peers/java-driver/lib/*' DriverProgram.java …

import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.ConsistencyLevel;
import com.datastax.oss.driver.api.core.CqlIdentifier;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BatchStatementBuilder;
import com.datastax.oss.driver.api.core.cql.BatchType;
import com.datastax.oss.driver.api.core.cql.BoundStatement;
import com.datastax.oss.driver.api.core.cql.ColumnDefinition;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.QueryTrace;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.cql.Statement;
import com.datastax.oss.driver.api.core.data.TupleValue;
import com.datastax.oss.driver.api.core.data.UdtValue;
import com.datastax.oss.driver.api.core.type.UserDefinedType;
import java.math.BigDecimal;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.CompletionStage;

public class DriverProgram {
  private static final UUID ID = UUID.fromString("00000000-0000-4000-8000-000000000001");
  private static final Instant TIME = Instant.parse("2020-02-29T12:30:45.678Z");

  /** Longer than the shortest lease. */
  private static final Duration LEASE_ENDS = Duration.ofSeconds(3);

  private final CqlSession session;
  private final String keyspace;

  private DriverProgram(CqlSession session, String keyspace) {
    this.session = session;
    this.keyspace = keyspace;
  }

  public static void main(String[] arguments) throws Exception {
    InetSocketAddress node = new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
    String keyspace = arguments[2];
    String protocol = "V" + (arguments.length > 3 ? arguments[3] : "5");
    DriverConfigLoader settings =
        DriverConfigLoader.programmaticBuilder()
            .withString(DefaultDriverOption.PROTOCOL_VERSION, protocol)
            .withString(DefaultDriverOption.LOAD_BALANCING_LOCAL_DATACENTER, "datacenter1")
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(60))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, Duration.ofSeconds(30))
            // The schema is asked for at once, not after a pause.
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_WINDOW, Duration.ZERO)
            // Warnings are looked at here, not logged.
            .withBoolean(DefaultDriverOption.REQUEST_LOG_WARNINGS, false)
            .withString(
                DefaultDriverOption.PROTOCOL_COMPRESSION,
                System.getenv().getOrDefault("COMPRESSION", "none"))
            .build();
    var builder = CqlSession.builder().addContactPoint(node).withConfigLoader(settings);
    if (arguments.length > 5) {
      builder.withAuthCredentials(arguments[4], arguments[5]);
    }
    try (CqlSession session = builder.build()) {
      new DriverProgram(session, keyspace).run();
    }
    System.out.println("done");
  }

  private void run() throws Exception {
    session.execute("DROP KEYSPACE IF EXISTS " + keyspace);
    session.execute(
        "CREATE KEYSPACE " + keyspace
            + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    session.execute("USE " + keyspace);
    say("keyspace", session.getKeyspace().get().asInternal().equals(keyspace));
    simple();
    prepared();
    userTypes();
    batches();
    paging();
    transactions();
    schema();
    errors();
    tracing();
    system();
    ends();
  }

  private void simple() {
    session.execute(
        "CREATE TABLE simple (k text PRIMARY KEY, b blob, i int, l bigint, u uuid, t timestamp,"
            + " f boolean, d double, n decimal, names list<text>, ages map<text, int>, tags set<int>)");
    session.execute(
        "INSERT INTO simple (k, b, i, l) VALUES ('literal', 0x00ff, -7, 9223372036854775807)");
    session.execute(
        SimpleStatement.newInstance(
            "INSERT INTO simple (k, b, i, l, u, t) VALUES (?, ?, ?, ?, ?, ?)",
            "bound", bytes(0, 1), Integer.MAX_VALUE, Long.MIN_VALUE, ID, TIME));
    for (String key : List.of("literal", "bound", "absent")) {
      say("simple " + key, rows(session.execute("SELECT k, b, i, l, u, t FROM simple WHERE k = ?", key)));
    }
    Map<String, Object> named = Map.of("key", "named", "number", 42);
    session.execute("INSERT INTO simple (k, i) VALUES (:key, :number)", named);
    Map<String, Object> key = Map.of("key", "named");
    say("simple named", rows(session.execute("SELECT k, i FROM simple WHERE k = :key", key)));
  }

  private void prepared() throws Exception {
    PreparedStatement insert =
        session.prepare(
            "INSERT INTO simple (k, b, i, l, u, t, f, d, n, names, ages, tags)"
                + " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    List<String> parameters = new ArrayList<>();
    insert.getVariableDefinitions().forEach(one -> parameters.add(one.getName().asInternal()));
    say("prepared parameters", parameters);
    say("prepared key", insert.getPartitionKeyIndices());
    PreparedStatement select = session.prepare("SELECT * FROM simple WHERE k = ?");
    session.execute(
        insert.bind(
            "all", bytes(255, 255), 1, 2L, ID, TIME, true, 0.5, new BigDecimal("12345678901234567890.05"),
            List.of("one", "two", "one"), Map.of("anna", 30, "bert", -1), Set.of(3, 1, 2)));
    say("prepared all", rows(session.execute(select.bind("all"))));
    Object[] nulls = new Object[12];
    nulls[0] = "nulls";
    session.execute(insert.bind(nulls));
    say("prepared nulls", rows(session.execute(select.bind("nulls"))));
    // What is unset stays; what is null goes.
    session.execute(insert.bind("all", null));
    BoundStatement sparse = insert.boundStatementBuilder().setString("k", "all").setToNull("b").build();
    say("prepared unset", sparse.isSet("i"));
    session.execute(sparse);
    say("prepared after unset", rows(session.execute(select.bind("all"))));
    session.execute(
        insert.bind(
            "empty", bytes(), 0, 0L, ID, TIME, false, 0.0, BigDecimal.ZERO, List.of(), Map.of(), Set.of()));
    say("prepared empty", rows(session.execute(select.bind("empty"))));
    PreparedStatement named = session.prepare("UPDATE simple SET i = :number, l = :other WHERE k = :key");
    session.execute(named.bind().setString("key", "all").setInt("number", 77).setLong("other", 78));
    say("prepared named", rows(session.execute("SELECT i, l FROM simple WHERE k = 'all'")));
    session.execute(session.prepare("DELETE FROM simple WHERE k = ?").bind("nulls"));
    say("prepared delete", rows(session.execute(select.bind("nulls"))));
    PreparedStatement many = session.prepare("SELECT k FROM simple WHERE k IN ?");
    TreeSet<String> found = new TreeSet<>();
    session.execute(many.bind(List.of("all", "literal", "absent"))).forEach(row -> found.add(row.getString(0)));
    say("prepared in", found);
    List<CompletionStage<AsyncResultSet>> running = new ArrayList<>();
    for (int number = 0; number < 300; number++) {
      running.add(session.executeAsync(select.bind("all")));
    }
    Set<Integer> values = new HashSet<>();
    for (CompletionStage<AsyncResultSet> one : running) {
      values.add(one.toCompletableFuture().get().one().getInt("i"));
    }
    say("prepared at once", values);
    // Between the text and a long value lies the end of a frame.
    byte[] large = new byte[300_000];
    for (int at = 0; at < large.length; at++) {
      large[at] = (byte) (at * 7);
    }
    session.execute(insert.bind("long", ByteBuffer.wrap(large)));
    ByteBuffer back = session.execute(select.bind("long")).one().getByteBuffer("b");
    say("prepared long", back.equals(ByteBuffer.wrap(large)));
  }

  private void userTypes() {
    session.execute("CREATE TYPE address (street text, number int)");
    session.execute(
        "CREATE TABLE people (k int PRIMARY KEY, home frozen<address>, pair tuple<int, text>,"
            + " names list<frozen<address>>)");
    session.execute("INSERT INTO people (k, home) VALUES (1, {street: 'Ring', number: 5})");
    PreparedStatement insert = session.prepare("INSERT INTO people (k, home, pair, names) VALUES (?, ?, ?, ?)");
    UserDefinedType type =
        (UserDefinedType) insert.getVariableDefinitions().get(CqlIdentifier.fromCql("home")).getType();
    say("type", type.getName() + " " + type.getFieldNames() + " " + type.getFieldTypes());
    TupleValue pair =
        ((com.datastax.oss.driver.api.core.type.TupleType)
                insert.getVariableDefinitions().get(CqlIdentifier.fromCql("pair")).getType())
            .newValue(7, "seven");
    List<UdtValue> names = List.of(type.newValue("a", 1), type.newValue("b", null));
    session.execute(insert.bind(2, type.newValue("Weg", 6), pair, names));
    for (int key : List.of(1, 2)) {
      say("type " + key, rows(session.execute("SELECT home, pair, names FROM people WHERE k = ?", key)));
    }
  }

  private void batches() {
    session.execute("CREATE TABLE items (k int, c int, v text, PRIMARY KEY (k, c))");
    session.execute("CREATE TABLE counts (k text PRIMARY KEY, n counter)");
    PreparedStatement insert = session.prepare("INSERT INTO items (k, c, v) VALUES (?, ?, ?)");
    int key = 1;
    for (BatchType kind : List.of(DefaultBatchType.LOGGED, DefaultBatchType.UNLOGGED)) {
      BatchStatementBuilder batch = BatchStatement.builder(kind);
      for (int number = 0; number < 4; number++) {
        batch.addStatement(insert.bind(key, number, "value " + number));
      }
      batch.addStatement(SimpleStatement.newInstance("UPDATE items SET v = 'text' WHERE k = ? AND c = 9", key));
      batch.addStatement(SimpleStatement.newInstance("DELETE FROM items WHERE k = ? AND c = 0", key));
      session.execute(batch.build());
      say("batch " + key, rows(session.execute("SELECT c, v FROM items WHERE k = ?", key)));
      key++;
    }
    PreparedStatement add = session.prepare("UPDATE counts SET n = n + ? WHERE k = ?");
    session.execute(
        BatchStatement.newInstance(
            DefaultBatchType.COUNTER, add.bind(5L, "a"), add.bind(-3L, "b"), add.bind(1L, "a")));
    Map<String, Long> counts = new TreeMap<>();
    session.execute("SELECT k, n FROM counts").forEach(row -> counts.put(row.getString(0), row.getLong(1)));
    say("batch of counters", counts);
    session.execute(
        "BEGIN BATCH INSERT INTO items (k, c) VALUES (3, 1); INSERT INTO items (k, c) VALUES (3, 2); APPLY BATCH");
    say("batch as text", rows(session.execute("SELECT c FROM items WHERE k = 3")));
    refused(
        "batch of counters and others",
        () -> session.execute(BatchStatement.newInstance(DefaultBatchType.LOGGED, add.bind(1L, "a"))));
    BatchStatement conditional =
        BatchStatement.newInstance(
            DefaultBatchType.LOGGED,
            SimpleStatement.newInstance("INSERT INTO items (k, c, v) VALUES (4, 1, 'x') IF NOT EXISTS"),
            SimpleStatement.newInstance("INSERT INTO items (k, c, v) VALUES (4, 2, 'y') IF NOT EXISTS"));
    say("batch with a condition", rows(session.execute(conditional)));
    say("batch with a condition, again", session.execute(conditional).wasApplied());
    // Cassandra warns of what is larger than 5 KiB and touches several partitions.
    BatchStatementBuilder large = BatchStatement.builder(DefaultBatchType.UNLOGGED);
    for (int number = 0; number < 20; number++) {
      large.addStatement(insert.bind(100 + number, 0, "x".repeat(500)));
    }
    List<Boolean> warned = new ArrayList<>();
    session.execute(large.build()).getExecutionInfo().getWarnings()
        .forEach(text -> warned.add(text.contains("exceeding")));
    say("batch that is large", warned);
  }

  private void paging() throws Exception {
    PreparedStatement insert = session.prepare("INSERT INTO items (k, c, v) VALUES (50, ?, ?)");
    for (int number = 0; number < 50; number++) {
      session.execute(insert.bind(number, "page " + number));
    }
    SimpleStatement text = SimpleStatement.newInstance("SELECT c FROM items WHERE k = 50").setPageSize(7);
    BoundStatement bound = session.prepare("SELECT c FROM items WHERE k = ?").bind(50).setPageSize(7);
    pages("simple", text);
    pages("prepared", bound);
    // A page is found again by its state, on another connection too.
    ByteBuffer state = session.execute(text).getExecutionInfo().getPagingState();
    AsyncResultSet rest = session.executeAsync(text.setPagingState(state)).toCompletableFuture().get();
    say("pages by state", rows(rest.currentPage()));
    SimpleStatement several =
        SimpleStatement.newInstance("SELECT k, c FROM items WHERE k IN (1, 2, 50)").setPageSize(7);
    say("pages over partitions", session.execute(several).all().size());
  }

  private void pages(String name, Statement<?> statement) throws Exception {
    List<Integer> pages = new ArrayList<>();
    List<Integer> expected = new ArrayList<>();
    List<Integer> found = new ArrayList<>();
    AsyncResultSet page = session.executeAsync(statement).toCompletableFuture().get();
    while (true) {
      pages.add(page.remaining());
      page.currentPage().forEach(row -> found.add(row.getInt(0)));
      if (!page.hasMorePages()) {
        break;
      }
      page = page.fetchNextPage().toCompletableFuture().get();
    }
    for (int number = 0; number < 50; number++) {
      expected.add(number);
    }
    say("pages " + name, pages);
    say("pages " + name + ", all", found.equals(expected));
  }

  private void transactions() throws InterruptedException {
    session.execute("CREATE TABLE locks (name text PRIMARY KEY, owner text)");
    PreparedStatement acquire =
        session.prepare("INSERT INTO locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 600");
    PreparedStatement renew =
        session.prepare("UPDATE locks USING TTL 600 SET owner = ? WHERE name = ? IF owner = ?");
    PreparedStatement release = session.prepare("DELETE FROM locks WHERE name = ? IF owner = ?");
    PreparedStatement holder = session.prepare("SELECT owner FROM locks WHERE name = ?");
    PreparedStatement left = session.prepare("SELECT ttl(owner) FROM locks WHERE name = ?");
    step("lock", acquire.bind("door", "anna"));
    step("lock, held", acquire.bind("door", "bert"));
    step("lock, held by the same", acquire.bind("door", "anna"));
    say("lock, its holder", rows(session.execute(holder.bind("door"))));
    int seconds = session.execute(left.bind("door")).one().getInt(0);
    say("lock, its time", 0 < seconds && seconds <= 600);
    step("renew", renew.bind("anna", "door", "anna"));
    step("renew, not the holder", renew.bind("bert", "door", "bert"));
    step("renew, absent", renew.bind("bert", "window", "bert"));
    step("release, not the holder", release.bind("door", "bert"));
    step("release", release.bind("door", "anna"));
    step("release, absent", release.bind("door", "anna"));
    say("lock, nobody's", rows(session.execute(holder.bind("door"))));
    step("lock, again", acquire.bind("door", "bert"));
    step(
        "lock as text",
        SimpleStatement.newInstance(
            "INSERT INTO locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 1", "short", "anna"));
    Thread.sleep(LEASE_ENDS.toMillis());
    step("lock, its lease has ended", acquire.bind("short", "bert"));
    step(
        "renew by text",
        SimpleStatement.newInstance("UPDATE locks SET owner = 'carl' WHERE name = 'short' IF owner = 'bert'"));
    step(
        "release as text",
        SimpleStatement.newInstance("DELETE FROM locks WHERE name = ? IF owner = ?", "short", "carl"));
    step("delete if there", SimpleStatement.newInstance("DELETE FROM locks WHERE name = 'door' IF EXISTS"));
    SimpleStatement serial =
        SimpleStatement.newInstance("SELECT owner FROM locks WHERE name = 'door'")
            .setConsistencyLevel(ConsistencyLevel.SERIAL);
    say("serial read", rows(session.execute(serial)));
    session.execute("INSERT INTO items (k, c, v) VALUES (7, 7, 'seven')");
    step(
        "compare and set",
        SimpleStatement.newInstance("UPDATE items SET v = 'eight' WHERE k = 7 AND c = 7 IF v = 'seven'"));
    step(
        "compare and set, failed",
        SimpleStatement.newInstance("UPDATE items SET v = 'nine' WHERE k = 7 AND c = 7 IF v IN ('a', 'b')"));
  }

  /** A conditional statement: whether it was applied, and the row that says so. */
  private void step(String name, Statement<?> statement) {
    ResultSet result = session.execute(statement);
    List<String> columns = new ArrayList<>();
    for (ColumnDefinition column : result.getColumnDefinitions()) {
      columns.add(column.getName().asInternal());
    }
    say(name, result.wasApplied() + " " + columns + " " + rows(result));
  }

  private void schema() {
    session.execute("CREATE TABLE grows (k int PRIMARY KEY, a text)");
    PreparedStatement insert = session.prepare("INSERT INTO grows (k, a) VALUES (?, ?)");
    PreparedStatement select = session.prepare("SELECT * FROM grows WHERE k = ?");
    session.execute(insert.bind(1, "one"));
    say("schema before", rows(session.execute(select.bind(1))));
    session.execute("ALTER TABLE grows ADD b int");
    session.execute(insert.bind(2, "two"));
    session.execute("UPDATE grows SET b = 5 WHERE k = 2");
    PreparedStatement fresh = session.prepare("SELECT k, a, b FROM grows WHERE k = ?");
    say("schema after, prepared anew", rows(session.execute(fresh.bind(2))));
    // In version 4 the driver goes on with the columns that it was told when it prepared.
    boolean told = session.getContext().getProtocolVersion().getCode() >= 5;
    say("schema after", told ? rows(session.execute(select.bind(2))) : "not asked");
    session.execute("DROP TABLE grows");
    refused("schema, table dropped", () -> session.execute(insert.bind(3, "three")));
  }

  private void errors() {
    refused("error of syntax", () -> session.execute("SELEC * FROM simple"));
    refused("error of a table", () -> session.execute("SELECT * FROM nowhere"));
    refused("error of a column", () -> session.execute("SELECT nothing FROM simple"));
    refused("error of a type", () -> session.execute("INSERT INTO simple (k, i) VALUES ('x', 'text')"));
    refused("error of a key", () -> session.execute("SELECT * FROM items WHERE c = 1"));
    refused("error of a keyspace", () -> session.execute("SELECT * FROM nowhere_at_all.simple"));
    refused("error, there already", () -> session.execute("CREATE TABLE simple (k int PRIMARY KEY)"));
    refused("error when preparing", () -> session.prepare("SELECT * FROM nowhere WHERE k = ?"));
    refused(
        "error of replicas",
        () ->
            session.execute(
                SimpleStatement.newInstance("SELECT * FROM simple WHERE k = 'all'")
                    .setConsistencyLevel(ConsistencyLevel.THREE)));
    // The connection is none the worse.
    say("after errors", rows(session.execute("SELECT k FROM simple WHERE k = 'all'")));
  }

  private void tracing() {
    ResultSet result =
        session.execute(SimpleStatement.newInstance("SELECT k FROM simple WHERE k = 'all'").setTracing(true));
    QueryTrace trace = result.getExecutionInfo().getQueryTrace();
    say(
        "trace",
        trace.getRequestType() + " " + trace.getParameters().get("query") + " " + (trace.getEvents().size() > 3));
  }

  private void system() {
    Row row = session.execute("SELECT key, partitioner FROM system.local").one();
    say("local", plain(row));
    say("local by key", session.execute("SELECT * FROM system.local WHERE key = 'local'").all().size());
    TreeSet<String> columns = new TreeSet<>();
    session
        .execute(
            "SELECT column_name, kind, type FROM system_schema.columns"
                + " WHERE keyspace_name = ? AND table_name = 'items'",
            keyspace)
        .forEach(one -> columns.add(plain(one).toString()));
    say("columns", columns);
    TreeSet<String> tables = new TreeSet<>();
    session.getMetadata().getKeyspace(keyspace).get().getTables().keySet()
        .forEach(name -> tables.add(name.asInternal()));
    say("tables", tables);
    say("protocol", session.getContext().getProtocolVersion().getCode());
  }

  private void ends() {
    session.execute("TRUNCATE items");
    say("truncated", rows(session.execute("SELECT * FROM items")));
    session.execute("DROP KEYSPACE " + keyspace);
    refused("dropped", () -> session.execute("SELECT * FROM items"));
  }

  private static void say(String step, Object found) {
    System.out.println(step + ": " + found);
  }

  /** Says how an action fails. */
  private void refused(String step, Runnable action) {
    try {
      action.run();
      say(step, "not refused");
    } catch (RuntimeException failure) {
      Throwable error = failure;
      if (failure instanceof AllNodesFailedException all) {
        // It names the node; what that said is of interest.
        error = all.getAllErrors().values().iterator().next().get(0);
      }
      String text = String.valueOf(error.getMessage()).replace(keyspace, "KEYSPACE");
      say(step, error.getClass().getSimpleName() + " " + text);
    }
  }

  private static ByteBuffer bytes(int... values) {
    ByteBuffer bytes = ByteBuffer.allocate(values.length);
    for (int value : values) {
      bytes.put((byte) value);
    }
    return bytes.flip();
  }

  private static List<Object> rows(Iterable<Row> rows) {
    List<Object> found = new ArrayList<>();
    rows.forEach(row -> found.add(plain(row)));
    return found;
  }

  private static List<Object> plain(Row row) {
    List<Object> values = new ArrayList<>();
    for (int at = 0; at < row.size(); at++) {
      values.add(plain(row.getObject(at)));
    }
    return values;
  }

  /** A value as text that does not depend on the order of maps and sets. */
  private static Object plain(Object value) {
    if (value instanceof ByteBuffer bytes) {
      StringBuilder text = new StringBuilder("0x");
      ByteBuffer copy = bytes.duplicate();
      while (copy.hasRemaining()) {
        text.append(String.format("%02x", copy.get()));
      }
      return text.toString();
    }
    if (value instanceof UdtValue || value instanceof TupleValue) {
      return value instanceof UdtValue type ? type.getFormattedContents() : ((TupleValue) value).getFormattedContents();
    }
    if (value instanceof Map<?, ?> map) {
      TreeMap<String, Object> sorted = new TreeMap<>();
      map.forEach((key, one) -> sorted.put(String.valueOf(plain(key)), plain(one)));
      return sorted;
    }
    if (value instanceof Set<?> set) {
      TreeSet<String> sorted = new TreeSet<>();
      set.forEach(one -> sorted.add(String.valueOf(plain(one))));
      return sorted;
    }
    if (value instanceof Collection<?> values) {
      List<Object> plain = new ArrayList<>();
      values.forEach(one -> plain.add(plain(one)));
      return plain;
    }
    return value;
  }
}
