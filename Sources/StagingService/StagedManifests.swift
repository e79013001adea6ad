/// The results of a run for several manifests, each with packs of its own.
package struct StagedManifests: Sendable {
    /// The results of the manifests that were available.
    package var results: [StagingResult] = []
    /// The failures of the others, in the order of the manifests.
    package var failures: [StagingFailure] = []
}
