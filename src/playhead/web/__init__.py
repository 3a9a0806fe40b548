"""The face in a browser, and the API: parse, call, render, as `cli/` does. It decides nothing by itself.

`server.py` starts it; `app.py` lists its routes. Whatever a page shows of brokers, workers and the ledger was asked by
`poller.py`, once for everyone who looks. Everything from outside passes `gate.py`: host, origin, login, sizes, headers.
"""
