"""Speed and size, as ratios measured side by side in one run. Outside `make test`; run with `make bench`."""
