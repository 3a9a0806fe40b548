import java.io.*;
import java.lang.reflect.InvocationTargetException;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import javax.tools.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.Exit;

/** Kafka's own classes in one process that stays: command-line tools, a consumer that reads to the end, and small Java programs. */
public class KafkaJvm {
  static class Ended extends RuntimeException { Ended() { super("the tool called exit", null, false, false); } }

  static final DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
  static final DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out)));
  static Integer exitCode;
  static final List<Runnable> hooks = new ArrayList<>();
  static final Map<String, Class<?>> compiled = new HashMap<>();

  public static void main(String[] args) throws Exception {
    Exit.setExitProcedure(KafkaJvm::ended);
    Exit.setHaltProcedure(KafkaJvm::ended);
    Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
    while (true) {
      String what;
      try { what = text(); } catch (EOFException end) { return; }
      ByteArrayOutputStream printed = new ByteArrayOutputStream(), errors = new ByteArrayOutputStream();
      int code;
      if (what.equals("read")) code = read(text(), text(), text(), printed, errors);
      else if (what.equals("tool")) code = run(Class.forName(text()), printed, errors);
      else code = run(compiled(text(), text()), printed, errors);
      out.writeInt(code);
      bytes(printed.toByteArray());
      bytes(errors.toByteArray());
      out.flush();
    }
  }

  static void ended(int code, String message) {
    if (exitCode == null) exitCode = code;
    throw new Ended();
  }

  /** A main method with its own standard streams. What it calls first, exit or an exception, decides the code. */
  static int run(Class<?> main, ByteArrayOutputStream printed, ByteArrayOutputStream errors) throws Exception {
    String[] arguments = new String[in.readInt()];
    for (int i = 0; i < arguments.length; i++) arguments[i] = text();
    InputStream oldIn = System.in;
    PrintStream oldOut = System.out, oldErr = System.err;
    System.setIn(new ByteArrayInputStream(bytes()));
    System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
    System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
    exitCode = null;
    hooks.clear();
    try {
      main.getMethod("main", String[].class).invoke(null, (Object) arguments);
    } catch (InvocationTargetException error) {
      if (exitCode == null) { error.getCause().printStackTrace(); exitCode = 1; }
    } finally {
      for (Runnable hook : new ArrayList<>(hooks)) try { hook.run(); } catch (Throwable ignored) { }
      System.out.flush();
      System.err.flush();
      System.setIn(oldIn);
      System.setOut(oldOut);
      System.setErr(oldErr);
    }
    return exitCode == null ? 0 : exitCode;
  }

  /** All records of a topic up to the end that is seen now: partition, offset, timestamp, key and value. */
  static int read(String servers, String topic, String isolation, OutputStream printed, OutputStream errors) throws Exception {
    Properties properties = new Properties();
    properties.put("bootstrap.servers", servers);
    properties.put("isolation.level", isolation);
    properties.put("enable.auto.commit", "false");
    properties.put("max.poll.records", "100000");
    properties.put("fetch.max.wait.ms", "20");
    DataOutputStream to = new DataOutputStream(printed);
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      List<TopicPartition> partitions = new ArrayList<>();
      consumer.partitionsFor(topic).forEach(one -> partitions.add(new TopicPartition(topic, one.partition())));
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue()))
        for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(500)))
          if (one.offset() < ends.get(new TopicPartition(topic, one.partition()))) {
            to.writeInt(one.partition());
            to.writeLong(one.offset());
            to.writeLong(one.timestamp());
            nullable(to, one.key());
            nullable(to, one.value());
          }
    } catch (RuntimeException error) {
      errors.write(error.toString().getBytes(StandardCharsets.UTF_8));
      return 1;
    }
    return 0;
  }

  static Class<?> compiled(String name, String source) throws Exception {
    Class<?> known = compiled.get(name + source);
    if (known != null) return known;
    Path folder = Files.createTempDirectory("playhead-oracle");
    Path file = Files.writeString(folder.resolve(name + ".java"), source);
    StringWriter problems = new StringWriter();
    JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
    List<String> options = List.of("-cp", System.getProperty("java.class.path"), "-d", folder.toString());
    try (StandardJavaFileManager files = compiler.getStandardFileManager(null, null, null)) {
      if (!compiler.getTask(problems, files, null, options, null, files.getJavaFileObjects(file)).call())
        throw new IllegalArgumentException(problems.toString());
    }
    Class<?> made = new URLClassLoader(new URL[] {folder.toUri().toURL()}, KafkaJvm.class.getClassLoader()).loadClass(name);
    compiled.put(name + source, made);
    return made;
  }

  static String text() throws IOException { return new String(bytes(), StandardCharsets.UTF_8); }

  static byte[] bytes() throws IOException { return in.readNBytes(in.readInt()); }

  static void bytes(byte[] value) throws IOException { out.writeInt(value.length); out.write(value); }

  static void nullable(DataOutputStream to, byte[] value) throws IOException {
    to.writeInt(value == null ? -1 : value.length);
    if (value != null) to.write(value);
  }
}
