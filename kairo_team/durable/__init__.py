"""The journal on disk: runs that go on after their process has died."""
