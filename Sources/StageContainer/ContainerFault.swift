public import StageModel
public import StageSystem
public import SystemPackage

/// A file or directory of a container that differs from what StagePack creates.
public struct ContainerFault: Hashable, Sendable {
    /// The difference.
    @nonexhaustive
    public enum Problem: Hashable, Sendable {
        /// The entry does not exist.
        case isMissing
        /// The entry is not of the expected kind.
        case isNo(FileStatus.Kind)
        /// The entry has other permission bits.
        case hasMode(UInt32, expected: UInt32)
        /// The entry belongs to another user than the container does.
        case belongsTo(user: UInt32, expected: UInt32)
        /// The content of the record is invalid.
        case isDamaged
        /// The record is not read: it and those before it exceed the limit of their total size.
        case exceedsLimit(ByteCount)
    }

    /// The path, relative to the container.
    public var name: FilePath
    /// The difference.
    public var problem: Problem

    /// Creates a fault.
    public init(name: FilePath, problem: Problem) {
        self.name = name
        self.problem = problem
    }
}

extension ContainerFault: CustomStringConvertible {
    /// The problem, as a sentence fragment without the name.
    public var description: String {
        switch problem {
        case .isMissing: "is missing"
        case .isNo(.directory): "is not a directory"
        case .isNo(.link): "is not a link"
        case .isNo: "is not a regular file"
        case .hasMode(let found, let expected):
            "has mode \(String(found, radix: 8)), expected \(String(expected, radix: 8))"
        case .belongsTo(let user, let expected):
            "belongs to user \(user), expected user \(expected)"
        case .isDamaged: "is damaged"
        case .exceedsLimit(let limit):
            "is ignored: the manifests of a container are at most \(limit) together"
        }
    }
}
