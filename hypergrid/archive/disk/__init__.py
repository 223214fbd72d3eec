"""Files of an archive: storage backends, folder, locks, checksums and retention."""
