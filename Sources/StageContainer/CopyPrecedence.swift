/// The rule that selects a copy of a pack if several containers have one: the newest acceptable version.
///
/// A pin determines the acceptable version, also after a rollback, which pins the version that it restores. So
/// pinned copies come before others, and among them the first container's. Without a pin, the highest version
/// comes first and, for equal versions, the first container's. The copy with the greatest value is used.
package struct CopyPrecedence: Comparable, Sendable {
    /// The position of the container: the user's is before the system's.
    package var container: Int
    /// The publisher's version; `nil` if the name of the generation does not contain it.
    package var version: Int?
    /// `true` if the container has a pin for this version.
    package var isPinned: Bool

    /// Creates the value from its parts.
    package init(container: Int, version: Int?, isPinned: Bool) {
        self.container = container
        self.version = version
        self.isPinned = isPinned
    }

    /// Returns whether the right copy takes precedence over the left one.
    package static func < (left: Self, right: Self) -> Bool {
        if left.isPinned != right.isPinned { return right.isPinned }
        let (old, new) = (left.version ?? .min, right.version ?? .min)
        if !left.isPinned, old != new { return old < new }
        return left.container > right.container
    }
}
