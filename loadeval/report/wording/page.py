"""Captions and notes of the figures on the page, and what stands where there is nothing to draw."""

from __future__ import annotations

from loadeval.analysis.estimate.summary import OUTLIER_TIMES_MEDIAN
from loadeval.report.wording.verdict import LOADED_NOTHING, NO_STEADY_BATCH, STEADY

NOTHING = f"Not measured: {NO_STEADY_BATCH}."
STEADY_RATES = f"Throughput: {STEADY}."
INTERVALS = "Whiskers and brackets are 95% CIs."
DOTS_AND_LINES = "Dots are iterations, and lines the means of blocks."
HOW_TO_MEASURE_GAIN = (
    "This run does not show what ideal loading would gain. Measure with mode='alternate', or with "
    "mode='log' and again with mode='replay'."
)
NO_FINDING = "No problem with data loading was found."
NO_RULES = "No rule was checked for this run."
NOT_OF_REPLAY = f"Nothing to check: {LOADED_NOTHING}."
FINE, UNKNOWN = "Checked and found fine", "Not measured"
MADE = (
    "loadeval {version} made this page from {files}. The first command makes it again, the second "
    "one prints the same in a terminal."
)

THROUGHPUT = (
    "Steady-state throughput in {unit} per second: of training as it was (real), with ideal "
    "loading (ideal), and of the loader with no training step (loader alone). Whiskers are 95% CIs."
)
ONE_THROUGHPUT = "Steady-state throughput in {unit} per second. The whisker is its 95% CI."
LOST_TIME = (
    "Mean time per batch: the step, the wait for its batch, and what epoch starts add. What real "
    "takes beyond ideal is lost to waiting, to contention (steps are slower while the loader "
    "works), or to epoch starts (the first batches and the end of an epoch take longer than "
    "others). The ideal arm trains on batches in memory. Whiskers are 95% CIs; hollow bars are "
    "gains."
)
GPU_IDLE = " GPU idle while waiting is the part of the wait in which the GPU had no work queued."
ITERATION_PARTS = "Mean iteration time in the steady state: the wait for the batch and the step."
OF_BACKENDS = (
    "For alternating runs the step is split into what it takes alone and what contention adds: "
    "steps are slower while the loader works."
)
TIMELINE = (
    "The wait for each batch (above) and its step (below), against the time since the run began."
)
RINGS = f" Rings mark real iterations over {OUTLIER_TIMES_MEDIAN}x their median."
SHADED = " Measured blocks are shaded: real (dots) and ideal (diamonds)."
NOT_SHADED = " The {count:,} blocks are too many to be shaded."
NO_BATCH = "No batch was served."
OUTLIERS = (
    "Measured iterations, against the time since the run began. Rings mark outliers: iterations "
    f"over {OUTLIER_TIMES_MEDIAN}x the median of their arm, which is the dashed line."
)
NO_OUTLIER = "None of the {count} measured took over {times}x the median."
EPOCH_STARTS = "The first wait of each epoch: the loader starts, and loads the first batch."
NO_EPOCH_START = (
    "No epoch start was measured: no epoch began with a real block, or the first batch was "
    "ready before the loader was wrapped."
)
THINNED = (
    "Thinned: {shown:,} of {count:,} {what} are drawn, with the extremes of each stretch. All "
    "numbers on this page are computed from all of them."
)
DISTRIBUTION = (
    "How long training waited for a batch: the share of the measured batches for each wait, on a "
    "logarithmic axis."
)
ZEROS = " Waits of zero are at its left end."
METRICS = "System metrics over the run: {names}. Zoom follows the timeline."
SHADED_METRICS = " Measured blocks are shaded as there."
NO_METRICS = "No system metrics: {why}."
NO_READINGS_OF_RUN = "this run has no readings"
