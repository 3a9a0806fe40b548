"""A Java source file run as it is, with Kafka's own classes beside it."""

from kafka_jvm import KAFKA_JVM


def run_java(name: str, text: str, *arguments: str, given: bytes = b"") -> bytes:
    """`name` is that of the public class in `text`; `given` is what it reads, the outcome what it prints."""
    return KAFKA_JVM.run(name, text, arguments, given)


# Transforms and predicates made and applied as a worker does it, for programs that have them; `import java.util.*` is theirs.
CHAIN = r"""
class Chain<R extends org.apache.kafka.connect.connector.ConnectRecord<R>> {
  private final List<org.apache.kafka.connect.transforms.Transformation<R>> stages = new ArrayList<>();
  private final List<java.util.function.Predicate<R>> conditions = new ArrayList<>();

  static Map<String, String> below(Map<String, String> config, String prefix) {
    Map<String, String> found = new HashMap<>();
    config.forEach((k, v) -> { if (k.startsWith(prefix)) found.put(k.substring(prefix.length()), v); });
    return found;
  }

  @SuppressWarnings("unchecked")
  static <T> T made(Map<String, String> own) throws Exception {
    return (T) Class.forName(own.remove("type")).getDeclaredConstructor().newInstance();
  }

  Chain(Map<String, String> config) throws Exception {
    for (String alias : config.getOrDefault("transforms", "").split("\\s*,\\s*")) {
      if (alias.isEmpty()) continue;
      Map<String, String> own = below(config, "transforms." + alias + ".");
      org.apache.kafka.connect.transforms.Transformation<R> stage = made(own);
      String predicate = own.remove("predicate");
      boolean negated = "true".equals(own.remove("negate"));
      stage.configure(own);
      stages.add(stage);
      if (predicate == null) { conditions.add(record -> true); continue; }
      Map<String, String> theirs = below(config, "predicates." + predicate + ".");
      org.apache.kafka.connect.transforms.predicates.Predicate<R> condition = made(theirs);
      condition.configure(theirs);
      conditions.add(record -> condition.test(record) != negated);
    }
  }

  /** Null for a record that is dropped. */
  R apply(R record) {
    for (int i = 0; i < stages.size() && record != null; i++)
      if (conditions.get(i).test(record)) record = stages.get(i).apply(record);
    return record;
  }
}
"""
