"""Changes and full contents of MySQL and MariaDB tables."""
