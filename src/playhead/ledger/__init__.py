"""The ledger: which run works for a pipeline, what its steps committed, and the consumer offsets kept in a database.

It is built on `sql`, which knows databases and not what they hold.
"""

import playhead.sql  # noqa: F401  without the extra, the answer is the install command
