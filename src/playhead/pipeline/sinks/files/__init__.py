"""Topics as files in a folder or objects in S3, as the S3 sink connector cuts and names them."""
