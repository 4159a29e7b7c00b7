#!/bin/sh
# Trains on JPEGs, and then on digits: train.sh DATA LOSSES
set -eu
here=$(dirname "$0")
mkdir "$2/imagenet" "$2/mnist"
python "$here/imagenet.py" --workers 0 "$1" "$2/imagenet"
python "$here/mnist.py" "$1" "$2/mnist"
