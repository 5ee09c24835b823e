//! What DRA drivers publish on the machines of each instance type.
