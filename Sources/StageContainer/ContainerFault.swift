public import StageSystem
public import SystemPackage

/// A file or directory of a container that is not as StagePack makes it.
public struct ContainerFault: Hashable, Sendable {
    /// The difference.
    public enum Problem: Hashable, Sendable {
        /// It is not there.
        case isMissing
        /// It is not a directory, or not a regular file.
        case isNo(FileStatus.Kind)
        /// It has other permission bits.
        case hasMode(UInt32, expected: UInt32)
        /// It belongs to another user than the container.
        case belongsTo(user: UInt32, expected: UInt32)
        /// Its content is not what StagePack wrote.
        case isDamaged
    }

    /// The file or directory, from the container's directory on.
    public var name: FilePath
    /// The difference.
    public var problem: Problem

    /// Creates a fault from its facts.
    public init(_ name: FilePath, _ problem: Problem) {
        self.name = name
        self.problem = problem
    }
}

extension ContainerFault: CustomStringConvertible {
    /// The problem, as a fragment without the name.
    public var description: String {
        switch problem {
        case .isMissing: "is missing"
        case .isNo(.directory): "is not a directory"
        case .isNo: "is not a regular file"
        case .hasMode(let found, let expected):
            "has mode \(String(found, radix: 8)), expected \(String(expected, radix: 8))"
        case .belongsTo(let user, let expected):
            "belongs to user \(user), expected user \(expected)"
        case .isDamaged: "is damaged"
        }
    }
}
