"""Orders of an HTTP API with pages and a token, one source partition for each region.

PLAYHEAD_PLUGIN_PATH=examples/connectors playhead run examples/connectors/http_orders.properties
"""

import json
import urllib.error
import urllib.parse
import urllib.request

from playhead.sdk import Option, RetriableException, Secret, SourceConnector, SourceRecord, SourceTask, between, split


class OrdersTask(SourceTask):
    def start(self, config, offsets):
        self.config = config
        self.after = {r: offsets.get({"region": r}, {"id": 0})["id"] for r in config["regions"]}

    def poll(self):
        for region, after in self.after.items():
            orders = self.get(f"/{region}/orders", after=after, limit=self.config["page.size"])
            for order in orders:
                self.after[region] = order["id"]
                yield SourceRecord("orders", order, str(order["id"]), {"region": region}, {"id": order["id"]})
            if orders:
                return  # a page is one transaction

    def get(self, path, **query):
        return get_json(self.config, path, query)


class OrdersApi(SourceConnector):
    version = "1.0"
    config = [
        Option("api.url", doc="Where the orders are"),
        Option("api.token", Secret),
        Option("page.size", int, 500, check=between(1, 10_000)),
    ]
    task = OrdersTask

    def task_configs(self, max_tasks):
        return [{"regions": some} for some in split(get_json(self.options, "/regions", {}), max_tasks)]


def get_json(config, path, query):
    url = f"{config['api.url']}{path}?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {config['api.token'].reveal()}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 429 or error.code >= 500:  # too many requests, or not now
            raise RetriableException(f"{error.code} {error.reason}") from None
        raise
