//! Launch templates, as far as machines are made from them.

use serde::{Deserialize, Serialize};

use super::{Cloud, Lag, Template, error};
use crate::launch::template::{LaunchTemplate, Market, Placement};
use crate::node_class::spec::Tags;
use crate::service::Error;
use crate::service::ec2::ExistingTemplate;

/// What of a launch template machines show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content {
    /// What machines are told when they boot, encoded.
    pub(super) user_data: String,
    /// How they are paid.
    pub(super) market: Market,
    /// Where they are placed.
    pub(super) placement: Placement,
    /// Their security groups.
    pub(super) security_groups: Vec<String>,
    /// How many Elastic Fabric Adapters they have.
    pub(super) efa_count: u32,
    /// The tags of the template itself.
    pub(super) tags: Tags,
}

impl Content {
    pub(super) fn of(template: &LaunchTemplate) -> Self {
        let is_efa = |kind: Option<&str>| kind.is_some_and(|kind| kind.starts_with("efa"));
        let efas = template.network_interfaces.iter().filter(|it| is_efa(it.interface_type)).count();
        let first = template.network_interfaces.first();
        Self {
            user_data: template.user_data.clone(),
            market: template.market.clone(),
            placement: template.placement.clone(),
            security_groups: first.map(|it| it.security_groups.clone()).unwrap_or_default(),
            efa_count: u32::try_from(efas).unwrap_or(u32::MAX),
            tags: template.tags.clone(),
        }
    }
}

impl Cloud {
    /// `CreateLaunchTemplate`.
    pub(super) async fn make_template(&self, name: &str, content: Content) -> Result<(), Error> {
        const CALL: &str = "ec2:CreateLaunchTemplate";
        self.call(CALL, 0, |state, now| {
            if state.templates.contains_key(name) {
                let message = format!("Launch template name already in use: {name}");
                return Err(error(CALL, "InvalidLaunchTemplateName.AlreadyExistsException", message));
            }
            let id = format!("lt-{:017x}", state.next_number());
            let shown_from = now.saturating_add(state.lag(Lag::Template));
            let existing = ExistingTemplate { id, name: name.to_owned(), tags: content.tags.clone() };
            state.templates.insert(name.to_owned(), Template { existing, content, shown_from });
            Ok(())
        })
        .await
    }
}
