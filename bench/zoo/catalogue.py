"""All programs with a fault that is looked for inside the loader, in the order of their themes."""

from bench.zoo import arrays, images, order, storage, texts, threads, workers
from bench.zoo.programs import Program

PROGRAMS: dict[str, Program] = {
    **images.PROGRAMS,
    **texts.PROGRAMS,
    **arrays.PROGRAMS,
    **order.PROGRAMS,
    **storage.PROGRAMS,
    **workers.PROGRAMS,
    **threads.PROGRAMS,
}
