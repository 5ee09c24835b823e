//! Instance types as EC2 describes them, and what a node of each has to give.
