"""Memory of the processes of a stream with a limit: what was freed goes back to the system."""

from functools import cache

import pyarrow as pa

from hypergrid.core.freed_memory import return_large_blocks


@cache
def keep_small() -> None:
    """Have this process return large blocks at once, and the others by `give_back`; some arrays take longer to make."""
    return_large_blocks()
    # The pools of Arrow's own allocators keep what was freed.
    pa.set_memory_pool(pa.system_memory_pool())
