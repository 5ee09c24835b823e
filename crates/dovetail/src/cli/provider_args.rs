//! `--provider`, and the options that providers declare as flags.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use cloudprovider::options::{OptionDeclaration, OptionKind, OptionValue, OptionValues, Visibility};
use provisioner::options::go_bool;

use crate::providers::{self, Plugin};

/// The provider that a command works with.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct ProviderArg {
    /// The cloud provider
    #[arg(id = "provider", long = "provider", value_name = "NAME", env = "CLOUD_PROVIDER",
          default_value = Plugin::default().declaration().name, value_parser = parser(), help_heading = "Provider")]
    pub(super) plugin: Plugin,
}

fn parser() -> impl TypedValueParser<Value = Plugin> {
    let names = providers::all().map(|plugin| plugin.declaration().name);
    // What is not in the table was refused before.
    PossibleValuesParser::new(names).try_map(|name| providers::named(&name).ok_or("is not known"))
}

/// The provider to run with, and the values of its options.
#[derive(Debug, Clone)]
pub(super) struct ProviderArgs {
    pub(super) plugin: Plugin,
    pub(super) values: OptionValues,
}

impl clap::Args for ProviderArgs {
    fn augment_args(command: Command) -> Command {
        providers::all().fold(ProviderArg::augment_args(command), |command, plugin| {
            let declared = plugin.declaration();
            command.args(declared.options.iter().map(|option| arg(option, declared.options_heading)))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ProviderArgs {
    /// Another provider's options are refused as flags. As variables they are not: a chart may set them always.
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let plugin = ProviderArg::from_arg_matches(matches)?.plugin;
        let in_use = plugin.declaration();
        for other in providers::all().map(|other| other.declaration()).filter(|other| other.name != in_use.name) {
            for option in other.options {
                if matches.value_source(option.flag) == Some(ValueSource::CommandLine) {
                    let problem = format!("--{} is of provider {}, not {}\n", option.flag, other.name, in_use.name);
                    return Err(clap::Error::raw(ErrorKind::ArgumentConflict, problem));
                }
            }
        }
        let mut values = OptionValues::default();
        for option in in_use.options {
            if let Some(given) = value(option, matches) {
                values.set(option.flag, given);
            }
        }
        Ok(Self { plugin, values })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn arg(option: &OptionDeclaration, heading: &'static str) -> Arg {
    let arg = Arg::new(option.flag)
        .long(option.flag)
        .env(option.env)
        .value_name(option.env)
        .help(option.help)
        .help_heading(heading)
        .hide(option.visibility == Visibility::Hidden);
    match option.kind {
        OptionKind::Text => arg,
        OptionKind::Path => arg.value_parser(value_parser!(PathBuf)),
        OptionKind::Switch => arg
            .value_parser(go_bool)
            .action(ArgAction::Set)
            .num_args(0..=1)
            .default_value("false")
            .default_missing_value("true")
            .require_equals(true),
    }
}

fn value(option: &OptionDeclaration, matches: &ArgMatches) -> Option<OptionValue> {
    match option.kind {
        OptionKind::Text => matches.get_one::<String>(option.flag).cloned().map(OptionValue::Text),
        OptionKind::Path => matches.get_one::<PathBuf>(option.flag).cloned().map(OptionValue::Path),
        OptionKind::Switch => matches.get_one::<bool>(option.flag).copied().map(OptionValue::Switch),
    }
}

#[cfg(test)]
mod tests;
