"""The S3 sink connector, into a bucket or a folder."""
