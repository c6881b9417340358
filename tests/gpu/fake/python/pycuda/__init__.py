"""Just what the check's pycuda step calls."""
import fake_arrays

fake_arrays.on_import()
VERSION_TEXT = "2025.1+fake"
