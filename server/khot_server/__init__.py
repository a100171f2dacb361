"""The khot service: an API process in front of workers that hold the k-hot layers."""
