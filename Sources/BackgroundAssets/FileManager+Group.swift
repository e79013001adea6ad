public import Foundation
import StageExtension
import StageModel
import StagePack
import StageSystem
import SystemPackage

extension FileManager {
    /// Returns the shared directory of an application group, which this process may write to; `nil` for an
    /// invalid group.
    ///
    /// In an extension it is the directory that the host passed. Otherwise it is the first of the user's and
    /// the system's that exists and is writable, else the user's path (depending on the environment, because
    /// Apple's method has no argument for it), or the system's if the environment has no absolute `XDG_DATA_HOME` or
    /// `HOME`. Creates nothing. An extension that the system runs shares its
    /// directory with root: `systemContainerURL(forSecurityApplicationGroupIdentifier:)`.
    public func containerURL(forSecurityApplicationGroupIdentifier identifier: String) -> URL? {
        if let request = ExtensionSession.request {
            guard request.applicationGroup.text == identifier else { return nil }
            return URL(filePath: request.container.string, directoryHint: .isDirectory)
        }
        guard let group = Self.group(identifier) else { return nil }
        let environment = ProcessEnvironment.current
        let folders = ContainerLocations.forReading(group, environment: environment)
            .map { Self.sharedFolder(of: $0) }
        return folders.first { isWritableFile(atPath: $0.path) } ?? folders.first
    }

    /// Returns the shared directory that extensions write to when the system runs them, such as at the
    /// installation of the application's package, and that applications of users can only read; `nil` for an
    /// invalid group.
    ///
    /// Creates nothing. Not a member of Apple's class, whose systems have one directory for each group.
    public func systemContainerURL(
        forSecurityApplicationGroupIdentifier identifier: String
    ) -> URL? {
        Self.group(identifier).map { Self.sharedFolder(of: ContainerLocations.system($0)) }
    }

    private static func group(_ identifier: String) -> ApplicationGroupID? {
        // An identifier that breaks a rule is the identifier of no group.
        try? ApplicationGroupID(identifier)
    }

    private static func sharedFolder(of container: FilePath) -> URL {
        URL(filePath: container.appending("shared").string, directoryHint: .isDirectory)
    }
}
