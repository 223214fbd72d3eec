"""Sources of bytes: files, folders and MQTT, and the spool that stores streamed input."""
