"""A chain of transforms in a run of a sink on Spark: two sets of objects, headers, and dead letters by Kafka's own consumer."""

from confluent_kafka import Producer

from integration.delivering import bytes_in, deliver
from integration.sinks_on_the_lab import printed

__all__ = ["deliver"]
KINDS = "org.apache.kafka.connect.transforms."


def test_routed_filtered_and_failing_records_of_one_partition(deliver, tmp_path):
    topic, queue = "chained", "chained-dlq"
    deliver.make_topic(topic, 1)
    producer = Producer({"bootstrap.servers": deliver.lab.bootstrap_servers})
    for number in range(10):
        value = None if number == 4 else b'{"id":"%s"}' % (b"x" if number == 7 else b"%d" % number)
        producer.produce(topic, value, partition=0, headers=[("odd", b"1")] if number % 2 else [("even", None)])
    assert producer.flush(30) == 0
    spec = deliver.files(
        topic,
        tmp_path,
        **{
            "transforms": "drop,num,to",
            "transforms.drop.type": f"{KINDS}Filter",
            "transforms.drop.predicate": "gone",
            "transforms.num.type": f"{KINDS}Cast$Value",
            "transforms.num.spec": "id:int32",
            "transforms.to.type": f"{KINDS}RegexRouter",
            "transforms.to.regex": "(.*)",
            "transforms.to.replacement": "odd-$1",
            "transforms.to.predicate": "odd",
            "predicates": "gone,odd",
            "predicates.gone.type": f"{KINDS}predicates.RecordIsTombstone",
            "predicates.odd.type": f"{KINDS}predicates.HasHeaderKey",
            "predicates.odd.name": "odd",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": queue,
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
            "value.converter.schemas.enable": "false",
        },
    )
    (done,) = deliver.run(spec)
    assert (done.error, done.rows) == (None, 9)
    assert bytes_in(tmp_path) == {
        "topics/chained/partition=0/chained+0+0000000000.json": b'{"id":0}\n{"id":2}\n{"id":6}\n{"id":8}\n',
        "topics/odd-chained/partition=0/odd-chained+0+0000000001.json": b'{"id":1}\n{"id":3}\n{"id":5}\n{"id":9}\n',
    }
    shown = printed(deliver.lab, queue, 1)
    assert '{"id":"x"}' in shown
    assert "odd:1" in shown
    assert "__connect.errors.stage:TRANSFORMATION" in shown
    assert f"__connect.errors.class.name:{KINDS}Cast$Value" in shown
    assert "__connect.errors.offset:7" in shown
