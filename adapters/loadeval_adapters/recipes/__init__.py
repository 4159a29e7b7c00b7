"""Loaders of a folder of JPEGs to copy, a file for each library; `loadeval backends` compares them.

Each has `make_loader(samples, batch_size, workers, resized=256, cropped=224)`. Samples are pairs of
path and class, such as `torchvision.datasets.ImageFolder("photographs").samples`; batches are
images, N x 3 x 224 x 224 bytes in random order, and their classes.
"""
