"""Gives a connector to the other engine, with its position: `playhead handover NAME --to spark|connect`.

A connector has one owner. `handover to spark`: its tasks in Connect end, older writers are fenced, the ledger records that it
belongs to Spark. `handover to connect`: its run ends, the ledger records that it belongs to Connect, so that no run claims it,
older writers are fenced, the worker shows the position that Spark committed, and only then is it resumed.

Each step is safe to be the last: after a kill there is the old owner, or none and an open record in the journal of connectors, or
the new owner. The same command continues from what both sides show; `connectors undo` goes back.
"""
