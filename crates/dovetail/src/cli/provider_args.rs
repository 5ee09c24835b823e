//! `--provider`, and the options that providers declare as flags: those of the controller, and those of offline
//! commands.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use cloudprovider::Declaration;
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
        augment(command, |declared| declared.options, |option| arg(option).env(option.env))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ProviderArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (plugin, values) = given(matches, |declared| declared.options)?;
        Ok(Self { plugin, values })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The provider whose machines an offline command plans with, and the values of its options for that.
#[derive(Debug, Clone, Default)]
pub(super) struct OfflineProviderArgs {
    pub(super) plugin: Plugin,
    pub(super) values: OptionValues,
}

impl clap::Args for OfflineProviderArgs {
    fn augment_args(command: Command) -> Command {
        augment(command, |declared| declared.catalogue_options, arg)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OfflineProviderArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (plugin, values) = given(matches, |declared| declared.catalogue_options)?;
        Ok(Self { plugin, values })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Which of a provider's options a command has.
type Declared = fn(&Declaration) -> &'static [OptionDeclaration];

/// Adds `--provider`, and the options of all providers.
fn augment(command: Command, options: Declared, arg: fn(&OptionDeclaration) -> Arg) -> Command {
    providers::all().fold(<ProviderArg as clap::Args>::augment_args(command), |command, plugin| {
        let declared = plugin.declaration();
        command.args(options(declared).iter().map(|option| arg(option).help_heading(declared.options_heading)))
    })
}

/// The provider in use, and the values of its options. Another provider's options are refused as flags. As variables
/// they are not: a chart may set them always.
fn given(matches: &ArgMatches, options: Declared) -> Result<(Plugin, OptionValues), clap::Error> {
    let plugin = ProviderArg::from_arg_matches(matches)?.plugin;
    let in_use = plugin.declaration();
    for other in providers::all().map(|other| other.declaration()).filter(|other| other.name != in_use.name) {
        for option in options(other) {
            if matches.value_source(option.flag) == Some(ValueSource::CommandLine) {
                let problem = format!("--{} is of provider {}, not {}\n", option.flag, other.name, in_use.name);
                return Err(clap::Error::raw(ErrorKind::ArgumentConflict, problem));
            }
        }
    }
    let mut values = OptionValues::default();
    for option in options(in_use) {
        if let Some(given) = value(option, matches) {
            values.set(option.flag, given);
        }
    }
    Ok((plugin, values))
}

fn arg(option: &OptionDeclaration) -> Arg {
    let arg = Arg::new(option.flag)
        .long(option.flag)
        .value_name(option.env)
        .help(option.help)
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
