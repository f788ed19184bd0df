"""Where the bytes of files are: providers that keep them, and the URLs that open them."""
