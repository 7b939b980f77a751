// The lock recipe by the Java driver: `LockRecipe.java HOST PORT KEYSPACE [PROTOCOL]`.
//
// It makes the table KEYSPACE.locks, takes, renews, gives and loses locks on it, and prints one line
// for each step: what the driver says was applied, and the names, types and values of the row. There
// are no times in the lines, so that those of two runs are alike, whatever stands between the driver
// and the nodes.

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.ColumnDefinition;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

public class LockRecipe {
  /** Longer than the shortest lease. */
  private static final Duration LEASE_ENDS = Duration.ofSeconds(9);

  private final CqlSession session;
  private final String keyspace;

  private LockRecipe(CqlSession session, String keyspace) {
    this.session = session;
    this.keyspace = keyspace;
  }

  public static void main(String[] arguments) throws Exception {
    InetSocketAddress node = new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
    String protocol = "V" + (arguments.length > 3 ? arguments[3] : "5");
    DriverConfigLoader settings =
        DriverConfigLoader.programmaticBuilder()
            .withString(DefaultDriverOption.PROTOCOL_VERSION, protocol)
            .withString(DefaultDriverOption.LOAD_BALANCING_LOCAL_DATACENTER, "datacenter1")
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(60))
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, Duration.ofSeconds(30))
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, Duration.ofSeconds(30))
            .build();
    try (CqlSession session =
        CqlSession.builder().addContactPoint(node).withConfigLoader(settings).build()) {
      new LockRecipe(session, arguments[2]).run();
    }
    System.out.println("done");
  }

  private void run() throws Exception {
    session.execute(
        "CREATE KEYSPACE " + keyspace
            + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    session.execute("USE " + keyspace);
    session.execute("CREATE TABLE locks (name text PRIMARY KEY, owner text, note text)");
    asText();
    prepared();
    errors();
    session.execute("DROP KEYSPACE " + keyspace);
  }

  private void asText() {
    String insert = "INSERT INTO locks (name, owner) VALUES (?, ?) IF NOT EXISTS USING TTL 600";
    told("text, taken", session.execute(insert, "door", "anna"));
    told("text, held", session.execute(insert, "door", "bert"));
    told("text, its holder", session.execute("SELECT * FROM locks WHERE name = 'door'"));
    Map<String, Object> named = Map.of("key", "door", "me", "anna", "lease", 600);
    told("text, renewed", session.execute(SimpleStatement.newInstance(
        "UPDATE locks USING TTL :lease SET owner = :me WHERE name = :key IF owner = :me", named)));
    told("text, by another", session.execute(
        "UPDATE locks USING TTL 600 SET owner = 'bert' WHERE name = 'door' IF owner = 'bert'"));
    told("text, absent", session.execute(
        "UPDATE locks USING TTL 600 SET owner = 'bert' WHERE name = 'gate' IF owner = 'bert'"));
    told("text, given by another", session.execute(
        "DELETE FROM locks WHERE name = 'door' IF owner = 'bert'"));
    told("text, given", session.execute("DELETE FROM locks WHERE name = 'door' IF owner = 'anna'"));
    told("text, given, absent", session.execute("DELETE FROM locks WHERE name = 'door' IF EXISTS"));
  }

  private void prepared() throws Exception {
    PreparedStatement take = session.prepare(
        "INSERT INTO locks (name, owner, note) VALUES (?, ?, ?) IF NOT EXISTS USING TTL ?");
    PreparedStatement renew = session.prepare(
        "UPDATE locks USING TTL :lease SET owner = :me WHERE name = :key IF owner = :me");
    PreparedStatement give = session.prepare("DELETE FROM locks WHERE name = ? IF owner = ?");
    PreparedStatement holder = session.prepare("SELECT owner, note FROM locks WHERE name = ?");
    for (PreparedStatement statement : List.of(take, renew, give, holder)) {
      say("prepared", columns(statement.getVariableDefinitions()) + " "
          + columns(statement.getResultSetDefinitions()) + " " + statement.getPartitionKeyIndices());
    }
    told("prepared, taken", session.execute(take.bind("wall", "anna", "why", 600)));
    told("prepared, held", session.execute(take.bind("wall", "bert", null, 600)));
    told("prepared, its holder", session.execute(holder.bind("wall")));
    told("prepared, renewed", session.execute(renew.boundStatementBuilder()
        .setInt("lease", 600).setString("me", "anna").setString("key", "wall").build()));
    told("prepared, by another", session.execute(renew.boundStatementBuilder()
        .setInt("lease", 600).setString("me", "bert").setString("key", "wall").build()));
    told("prepared, given by another", session.execute(give.bind("wall", "bert")));
    told("prepared, given", session.execute(give.bind("wall", "anna")));
    told("prepared, nobody's", session.execute(holder.bind("wall")));
    told("prepared, short", session.execute(take.bind("short", "anna", null, 6)));
    told("prepared, short, held", session.execute(take.bind("short", "bert", null, 600)));
    Thread.sleep(LEASE_ENDS.toMillis());
    told("prepared, its lease has ended", session.execute(holder.bind("short")));
    told("prepared, taken over", session.execute(take.bind("short", "bert", null, 600)));
    PreparedStatement plain = session.prepare("DELETE FROM locks WHERE name = ?");
    told("prepared, deleted", session.execute(plain.bind("short")));
    told("prepared, deleted, nobody's", session.execute(holder.bind("short")));
  }

  private void errors() {
    refused("error of a column", "INSERT INTO locks (name, nothing) VALUES ('a', 'b') IF NOT EXISTS");
    refused("error of the key", "INSERT INTO locks (owner) VALUES ('b') IF NOT EXISTS");
    refused("error of a lease", "INSERT INTO locks (name) VALUES ('b') IF NOT EXISTS USING TTL -1");
  }

  private void refused(String step, String text) {
    try {
      session.execute(text);
      say(step, "not refused");
    } catch (InvalidQueryException error) {
      say(step, error.getMessage().replace(keyspace, "KEYSPACE"));
    }
  }

  private void told(String step, ResultSet result) {
    // The driver tells before the rows are taken.
    boolean applied = result.wasApplied();
    List<List<Object>> rows = new ArrayList<>();
    for (Row row : result) {
      List<Object> values = new ArrayList<>();
      for (int at = 0; at < row.size(); at++) {
        values.add(row.getObject(at));
      }
      rows.add(values);
    }
    say(step, applied + " " + columns(result.getColumnDefinitions()) + " " + rows);
  }

  private static String columns(Iterable<ColumnDefinition> definitions) {
    List<String> columns = new ArrayList<>();
    for (ColumnDefinition column : definitions) {
      columns.add(column.getTable() + "." + column.getName() + " " + column.getType());
    }
    return columns.toString();
  }

  private static void say(String step, Object found) {
    System.out.println(step + ": " + found);
  }
}
