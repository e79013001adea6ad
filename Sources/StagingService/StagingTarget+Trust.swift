import FoundationEssentials
import StageContainer
import StageEngine
import StageModel
import StageSystem
import StageTrust
import SystemPackage

// The one place that decides with which root a manifest is verified.

extension Registration {
    /// The signed metadata of the application, from the root that the registration names; `nil` where the
    /// transport is all the trust there is.
    ///
    /// - Throws: ``StagingFailure/registration(_:)`` if the root cannot be read, or is not valid.
    func ledger(_ reader: ContainerReader?) throws(StagingFailure) -> TrustLedger? {
        guard case .root(let path) = trust else { return nil }
        return try .reading(FilePath(path), stored: reader, of: application)
    }
}

extension Registration {
    /// Reads the root that the registration names, if it names one.
    ///
    /// - Throws: ``StagingFailure/registration(_:)`` if the root cannot be read, or is not valid.
    package func checkRoot() throws(StagingFailure) { _ = try ledger(nil) }
}

extension StagingTarget {
    /// The signed metadata of the manifests that the target names by their URLs.
    func ledger(_ reader: ContainerReader?) throws(StagingFailure) -> TrustLedger? {
        guard let root else { return nil }
        let record = try reader.map { reader throws(StagingFailure) in
            try stored(reader).first
        }
        let manifest = record.flatMap { $0 }.flatMap { try? Manifest(json: Array($0.text.utf8)) }
        return try .reading(root, stored: reader, of: application ?? manifest?.application)
    }

    /// The source of a manifest that the container has stored: with the root of its application's
    /// registration, where there is one.
    func source(
        of record: StoredManifest,
        _ reader: ContainerReader
    ) throws(StagingFailure) -> ManifestSource {
        var source = ManifestSource(urls: [record.url], applicationVersion: applicationVersion)
        // A manifest that cannot be read is asked for anew, and looked at then.
        guard let manifest = try? Manifest(json: Array(record.text.utf8)) else { return source }
        if let root {
            source.application = manifest.application
            source.trust = try .reading(root, stored: reader, of: manifest.application)
        } else if let registered = registration(of: manifest.application) {
            source.trust = try registered.ledger(reader)
            if source.trust != nil { source.application = registered.application }
        }
        return source
    }

    /// The registration of an application on this machine, if it has one that can be read.
    private func registration(of application: ApplicationID) -> Registration? {
        // One that cannot be read is told of where it is asked for.
        try? RegistrationFolders(environment: environment).registration(of: application).value
    }

    /// Refuses a manifest that came without signatures, if its application is registered with a root for the
    /// same container, or the container has a manifest of it that was accepted for its signatures.
    ///
    /// A registration alone may say that signatures are needed no more.
    func checkNeedsNoRoot(_ manifest: Manifest) throws(StageError) {
        guard registration == nil else { return }
        let application = manifest.application
        let path: FilePath? = try? container(for: manifest)
        var needsRoot = false
        if let registered = registration(of: application), case .root = registered.trust {
            needsRoot = container(of: registered.group) == path
        }
        if let path, !needsRoot {
            do throws(ContainerError) {
                needsRoot =
                    try ContainerReader.open(path)?.hasTrust(for: application) ?? false
            } catch {
                throw .container(error)
            }
        }
        guard !needsRoot else {
            throw .manifestRefused(url: manifests.first ?? application.text, .unsigned)
        }
    }
}

extension TrustLedger {
    /// Reads root metadata from a file, and what a container has stored of the application's.
    ///
    /// - Throws: ``StagingFailure/registration(_:)`` if the file cannot be read, or is not valid.
    static func reading(
        _ path: FilePath,
        stored reader: ContainerReader?,
        of application: ApplicationID?
    ) throws(StagingFailure) -> TrustLedger {
        let bytes: [UInt8]
        do throws(FileError) {
            // A fifo would hold up a hook.
            bytes = try File.open(readingRegular: path).readAll(
                limit: Int(TrustLimits().rootLength.rawValue)
            )
        } catch {
            throw .registration("root metadata: \(error)")
        }
        do throws(TrustError) {
            _ = try RootMetadata(trusted: bytes)
        } catch {
            throw .registration("root metadata '\(path)': \(error)")
        }
        var trust = StoredTrust()
        if let reader, let application {
            do throws(ContainerError) {
                trust = try reader.storedTrust(for: application)
            } catch {
                throw StagingFailure(error)
            }
        }
        return TrustLedger(root: bytes, stored: trust)
    }
}
