import StageContainer
import StageModel

/// The last received manifest of an application, and the position of its container.
struct AcceptedRecord {
    let application: ApplicationID
    let container: Int
    let record: StoredManifest
    /// The manifest, decoded once; the error if it cannot be read.
    let manifest: Result<Manifest, ManifestError>

    init(_ decoded: ContainerView.DecodedManifest) {
        application = decoded.application
        container = decoded.copy.container
        record = decoded.copy.record
        manifest = decoded.manifest
    }
}
