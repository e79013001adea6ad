/// The rule that says which copy of a pack counts where several containers have one: the newest acceptable version.
///
/// A pin says which version is acceptable, also the one of a rollback, which is how a version is taken out of use. So a
/// pinned copy goes before all that are not pinned, and of several pinned ones the first container's. Without a pin the
/// highest version goes first; of the same version, the first container's. The greater value goes before the other.
package struct CopyPrecedence: Comparable, Sendable {
    /// The position of the container among those that are looked in: the user's before the system's.
    package var container: Int
    /// The publisher's version; `nil` if the name of the generation does not tell it.
    package var version: Int?
    /// Whether the container holds the pack at this version.
    package var isPinned: Bool

    /// Creates the value from its parts.
    package init(container: Int, version: Int?, isPinned: Bool) {
        self.container = container
        self.version = version
        self.isPinned = isPinned
    }

    /// Returns whether the right copy goes before the left one.
    package static func < (left: Self, right: Self) -> Bool {
        if left.isPinned != right.isPinned { return right.isPinned }
        let (old, new) = (left.version ?? .min, right.version ?? .min)
        if !left.isPinned, old != new { return old < new }
        return left.container > right.container
    }
}
