/// When a pack is fetched without the application asking for it.
///
/// The policies and the names of the events are those of Apple's Managed Background Assets.
public enum DownloadPolicy: Hashable, Sendable {
    /// Staged before the first launch after the named events.
    case essential(Set<InstallationEvent>)
    /// Started at the named events; may end later.
    case prefetch(Set<InstallationEvent>)
    /// Fetched when the application asks for it.
    case onDemand
}

/// An installation event that a policy can name.
public enum InstallationEvent: String, Hashable, Sendable, Codable, CaseIterable {
    /// The application is installed for the first time.
    case firstInstallation
    /// An installed application is updated.
    case subsequentUpdate
}

/// Why content is asked for (Apple's `BAContentRequest`).
public enum ContentRequest: String, Hashable, Sendable, Codable, CaseIterable {
    /// The application was installed.
    case install
    /// The application was updated.
    case update
    /// A check at a time of the system's choosing.
    case periodic
}
