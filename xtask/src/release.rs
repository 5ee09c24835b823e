//! Releases of Kubernetes that programs of other languages exist for.

use clap::ValueEnum;
use go_programs::Program;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Release {
    #[value(name = "1.36")]
    V1_36,
    #[value(name = "1.37")]
    V1_37,
}

impl Release {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
        }
    }

    pub(crate) fn control_plane(self) -> Program {
        match self {
            Self::V1_36 => go_programs::CONTROL_PLANE,
            Self::V1_37 => go_programs::CONTROL_PLANE_1_37,
        }
    }
}
