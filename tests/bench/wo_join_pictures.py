"""The picture of figure 3.7: the buffers of query 1 over time, with the optimum, the prediction and the bursts.

``python -m tests.bench.wo_join_pictures OUT`` writes ``buffers.png`` into a folder.
"""

import sys
from pathlib import Path

from matplotlib.figure import Figure

from tests.bench.wo_join_buffers import Course, course
from tests.bench.wo_join_cases import Sizes
from tests.support.streams.loads import BURST, CONGESTION

LOOKS = {
    "needed": ("needed by a result of the second, at most", {"color": "0.75", "linewidth": 3.0}),
    "optimum": ("optimum: least that can be held", {"color": "black", "linewidth": 1.2}),
    "predicted": ("predicted, monitored (equation 3.8)", {"color": "tab:red", "linewidth": 1.2}),
    "predicted, known": ("predicted, parameters known", {"color": "tab:red", "linewidth": 1.0, "linestyle": ":"}),
    "progress": ("held by progress", {"color": "tab:blue", "linewidth": 1.4, "linestyle": "--"}),
}
"""What is drawn of each stream, and how."""
MARKS = (
    (CONGESTION, "tab:orange", "S2 at 1/8 of its rate"),
    (BURST, "tab:green", "S3 at 8 times its rate"),
)


def drawn(shown: Course) -> Figure:
    """Return a picture: a panel a stream, seconds to the right, tuples upwards."""
    figure = Figure(figsize=(8.0, 7.2), layout="constrained")
    panels = figure.subplots(len(shown.streams), 1, sharex=True)
    for stream, (axes, name) in enumerate(zip(panels, shown.streams, strict=True)):
        for burst, colour, label in MARKS:
            axes.axvspan(burst.start_s, burst.start_s + burst.duration_s, color=colour, alpha=0.15, lw=0, label=label)
        for curve, (label, look) in LOOKS.items():
            axes.plot(shown.starts_s + 1, shown.curves[curve][stream], label=label, **look)
        axes.set(ylabel=f"{name} [tuples]", ylim=(0, None), xlim=(0, float(shown.starts_s[-1]) + 1))
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.3, linewidth=0.5)
    panels[-1].set_xlabel("time [s]")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    return figure


def write(out: Path, sizes: Sizes | None = None, *, seed: int = 0) -> Path:
    """Write the picture into a folder, and return its path."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "buffers.png"
    drawn(course(1, seed, sizes or Sizes())).savefig(path, dpi=90)
    return path


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
