//! What must stay true whatever goes wrong: [`audit`] holds machines against NodeClaims, now and over time.

pub mod audit;
