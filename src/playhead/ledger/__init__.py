"""The ledger: the current run of a pipeline, what its steps committed, and consumer offsets stored in a database.

It is built on `sql`, which handles databases but not their content.
"""

import playhead.sql  # noqa: F401  without the extra, this raises the error with the install command
